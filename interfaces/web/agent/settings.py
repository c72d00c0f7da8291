"""Sections of an agent's page: its model, its memory, its hooks and system events, heartbeat, caps and costs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Subquery
from django.http import HttpRequest

from agent_core.connections import EFFORTS
from agent_core.exceptions import FINAL_CODES, PASSING_CODES, ModelError
from agent_core.models import resolve
from automations.jobs.explain import next_run
from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, RunRecord, RunState
from automations.models.job import heartbeat_key
from automations.runs.describe import FAILED, describe_run
from automations.runs.report import event_id
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.pages import FormResult, given_revision, person, whole_number
from sessions_app.agents.documents import LONGEST_PREFERENCES, preference, put_preference
from sessions_app.agents.edit import update_agent
from sessions_app.agents.zones import known_zones, zone_of
from sessions_app.connections.usable import CURES, connections, model_warnings, usable_connections
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Engine, MailboxEvent, Session, Turn, TurnKind, TurnState
from sessions_app.reads import selectors, usage
from sessions_app.spending.caps import (
    AMOUNTS,
    MOST_TOKENS,
    PERIODS,
    RUN,
    WORDS,
    budget_of,
    caps_in_words,
)

MOST_MAIL = 20  # updates that are shown
MOST_UNREAD = 1_000  # unread updates
MOST_HOOKS = 50
MOST_MODELS = 200  # that are proposed
OFFLINE = "offline"
SETTINGS = ("temperature", "max_tokens", "reasoning")


def change_model(request: HttpRequest, agent: Agent) -> None:
    """Change the models and their settings, the engine, the time zone or the unified mode."""
    typed = {name: request.POST[name].strip() for name in request.POST}
    changes: dict[str, Any] = {name: typed.get(name, "") for name in ("model", "engine", "timezone")}
    changes["unified_session"] = typed.get("unified_session") == "yes"
    if "fallback_model" in typed:
        changes["fallback_model"] = typed["fallback_model"]
    if model_settings := {name: _setting(typed[name]) for name in SETTINGS if name in typed}:
        changes["model_settings"] = model_settings
    update_agent(agent.pk, changes, revision=given_revision(request))


def use_own_zone(request: HttpRequest, agent: Agent) -> None:
    """Give the agent the person's time zone."""
    zone = zone_of(person(request).pk)
    update_agent(agent.pk, {"timezone": zone}, revision=given_revision(request))


def _setting(typed: str) -> Any:
    """The value of a setting from the typed text; None removes it. A text that is no number is refused later."""
    for read in (int, float):
        with suppress(ValueError):
            return read(typed)
    return typed or None


def model(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The model with its settings, the engine and the time zone."""
    stored = {
        "model": agent.model,
        "engine": agent.engine,
        "timezone": agent.timezone,
        "unified_session": "yes" if agent.unified_session else "",
        "fallback_model": agent.fallback_model,
        **{name: agent.model_settings.get(name, "") for name in SETTINGS},
    }
    shown = outcome.shown(stored) if "engine" in (outcome.typed or {}) else stored  # not of the other forms
    is_offline = agent.effective_model == OFFLINE
    is_checked = request.GET.get("check") == "model" or is_offline
    return {
        "form": shown,
        "engines": Engine.choices,
        "efforts": EFFORTS,
        "has_settings": any(shown[name] != "" for name in SETTINGS),
        "models": _known_models(request),
        "warnings": _warnings(agent),
        "zones": sorted(known_zones()),
        "own_zone": zone_of(person(request).pk),
        "server_model": settings.RONDO_MODEL,
        "is_offline": is_offline,
        "is_checked": is_checked,
        "model_problem": _why_not_set_up(agent) if is_checked else "",
    }


def _warnings(agent: Agent) -> list[str]:
    """Why its models cannot be called; where nothing is stored of a connection, as the last turn of the conversation
    that was used last says. It says nothing once the agent or the connection was changed, or that works again.
    """
    known = model_warnings(agent)
    latest = Session.objects.filter(agent=agent).order_by("-updated_at").values("pk")[:1]
    ended = Turn.objects.filter(session=Subquery(latest), state__in=[TurnState.SUCCEEDED, TurnState.FAILED])
    last = ended.order_by("-pk").only("error_code", "queued_at").first()
    if known.uncallable or last is None or last.error_code not in FINAL_CODES | PASSING_CODES:
        return known.uncallable
    if last.queued_at < max(agent.updated_at, known.well_since or agent.updated_at):
        return []
    why = FAILED[last.error_code]
    return [f"The last turn failed: {why}. {CURES.get(last.error_code, '')}".rstrip()]


def _known_models(request: HttpRequest) -> list[str]:
    """Models that the person's connections allow by name, and the beginnings of the others."""
    found: dict[str, None] = {}
    for row in connections(person(request)):
        found |= dict.fromkeys(f"{row.name}:{each}" for each in row.allowed_models or [""])
    return list(found)[:MOST_MODELS]


def _why_not_set_up(agent: Agent) -> str:
    """Why this process cannot use the agent's model; empty when it can. Nothing is sent to its provider."""
    name = agent.effective_model
    try:
        resolve(name, usable_connections(agent.owner_id, [name]))
    except ModelError as error:
        return str(error).splitlines()[0]
    return ""


def change_preferences(request: HttpRequest, agent: Agent) -> None:
    """Replace the person's preferences; empty ones are removed."""
    content = "" if "remove" in request.POST else request.POST.get("content", "").replace("\r\n", "\n")
    put_preference(agent, person(request).pk, content, revision=given_revision(request))


def memory(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The person's preferences, and the mailbox of the agent's own conversation."""
    user = person(request)
    stored = preference(agent, user.pk)
    primary = agent.primary_session  # type: ignore[attr-defined]
    unread = MailboxEvent.objects.filter(target=primary, acknowledged_at=None, dropped_at=None)
    return {
        "stored": stored,
        "content": outcome.shown({"content": stored.content})["content"],
        "longest": LONGEST_PREFERENCES,
        "mail": selectors.mailbox(user, primary).newest(MOST_MAIL),
        "unread": unread[:MOST_UNREAD].count(),
    }


def change_events_url(request: HttpRequest, agent: Agent) -> None:
    """Change the address to which system events are posted; an empty one ends them."""
    url = request.POST.get("events_url", "").strip()
    update_agent(agent.pk, {"events_url": url}, revision=given_revision(request))


def hooks(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The agent's hooks, and the address for system events."""
    return {
        "hooks": selectors.hooks_of(person(request), agent.name).order_by("name", "pk")[:MOST_HOOKS],
        "events_url": outcome.shown({"events_url": agent.events_url})["events_url"],
        "is_wrong": bool(outcome.problem),
        "longest_url": Agent._meta.get_field("events_url").max_length,
    }


LARGEST = 99_999_999
LAST = 10  # beats that are listed
UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
SPANS = (("24 hours", timedelta(hours=24)), ("30 days", timedelta(days=30)))


def change_heartbeat(request: HttpRequest, agent: Agent) -> None:
    """Switch the heartbeat on or off, change its interval and its active hours."""
    seconds = dict(UNITS).get(request.POST.get("unit", ""), 60)
    given = {
        "enabled": request.POST.get("enabled") == "yes",
        "interval_seconds": _number(request, "interval", "the interval") * seconds,
        "active_hours": [_number(request, "from", "the first hour"), _number(request, "to", "the last hour")],
    }
    update_agent(agent.pk, {"heartbeat": given}, revision=given_revision(request))


def _number(request: HttpRequest, field: str, what: str) -> int:
    number = whole_number(request.POST.get(field, "").strip(), LARGEST)
    if number is None:
        raise BadInput(f"{what} must be a whole number", code="bad_heartbeat")
    return number


def heartbeat(_request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The settings, the next beat, the last ones and what they used."""
    job = CronJob.objects.filter(agent=agent, system_event=HEARTBEAT).first()
    seconds, (first, end) = agent.heartbeat["interval_seconds"], agent.heartbeat["active_hours"]
    unit, size = next(each for each in UNITS if seconds % each[1] == 0)
    enabled = "yes" if agent.heartbeat["enabled"] else ""
    stored = {"enabled": enabled, "interval": seconds // size, "unit": unit, "from": first, "to": end}
    return {
        "form": outcome.shown(stored),
        "stored": stored,
        "units": [unit for unit, _ in UNITS],
        "zone": agent.timezone,
        "next": next_run(job.pk) if job else None,
        "fault": job.fault if job else "",
        "beats": _last_beats(job) if job else [],
        "used": _used(agent),
    }


def _last_beats(job: CronJob) -> list[dict[str, Any]]:
    runs = list(RunRecord.objects.filter(job=job).order_by("-scheduled_for")[:LAST])
    ids = {event_id(run.turn_id, "None"): run.pk for run in runs if run.turn_id}
    found = MailboxEvent.objects.filter(event_id__in=ids, target__agent_id=job.agent_id)
    delivered = {ids[each] for each in found.values_list("event_id", flat=True)}
    return [_beat(run, job, is_delivered=run.pk in delivered) for run in runs]


def _beat(run: RunRecord, job: CronJob, *, is_delivered: bool) -> dict[str, Any]:
    """One heartbeat, or slots that were not run. `outcome` is the class of its mark, `words` its name."""
    outcome, words = run.state, RunState(run.state).label
    if run.state == RunState.SUCCEEDED:
        outcome, words = ("delivered", "Delivered") if is_delivered else ("suppressed", "Suppressed")
    text = describe_run(run, zone_or_utc(job.timezone))
    return {"at": run.scheduled_for, "outcome": outcome, "words": words, "text": text}


def _used(agent: Agent) -> list[dict[str, Any]]:
    """What the heartbeat's turns of the last hours and days used. `is_more`: older ones were not counted."""
    beats = {"session__key": heartbeat_key(agent.name), "kind": TurnKind.HEARTBEAT}
    turns = Turn.objects.filter(session__agent=agent, **beats)
    sums = ((span, usage.total_of(turns, length)) for span, length in SPANS)
    return [{"span": span, "used": used, "is_more": used.turns == usage.MOST_COUNTED} for span, used in sums]


CAPS = tuple(f"{period}_{name}" for period in PERIODS for name in AMOUNTS)  # the fields of `caps.html`


def change_caps(request: HttpRequest, agent: Agent) -> None:
    """Change the caps; an empty field removes one."""
    update_agent(agent.pk, {"limits": typed_caps(request)}, revision=given_revision(request))


def typed_caps(request: HttpRequest) -> dict[str, Any]:
    """The caps of a form as the API takes them; a field that it has not changes nothing. BadInput."""
    return {
        period: {
            name: _typed(request.POST[f"{period}_{name}"].strip(), name, period)
            for name in AMOUNTS
            if f"{period}_{name}" in request.POST
        }
        for period in PERIODS
    }


def _typed(text: str, name: str, period: str) -> Any:
    if not text or name == "usd":
        return text or None
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_TOKENS)):
        raise BadInput(f"tokens {WORDS[period]} must be a whole number", code="bad_limits")
    return int(text)


def stored_caps(limits: Mapping[str, Any]) -> dict[str, str]:
    """The values of the fields, as text."""
    return {
        f"{period}_{name}": str(limits.get(period, {}).get(name, ""))
        for period in PERIODS
        for name in AMOUNTS
    }


def cap_rows(shown: Mapping[str, str], words: Mapping[str, str]) -> list[dict[str, str]]:
    """What `caps.html` shows of each period. `shown`: the values of the fields; `words`: of `caps_in_words`."""
    return [
        {
            "period": period,
            "a": WORDS[period],
            "tokens": shown.get(f"{period}_tokens", ""),
            "usd": shown.get(f"{period}_usd", ""),
            "words": words.get(period, "") if period != RUN else "",  # its caps stand in the fields
        }
        for period in PERIODS
    ]


def spending(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The caps with what is spent, and the cost of the last 30 days."""
    budget = budget_of("agent", agent.pk, agent.limits, zone=agent.timezone)
    total = usage.total_of(Turn.objects.filter(owner_id=person(request).pk, session__agent=agent))
    words = caps_in_words(budget, is_partial=total.cost.is_partial)
    return {
        "caps": cap_rows(outcome.shown(stored_caps(agent.limits)), words),
        "warnings": model_warnings(agent).caps,
        "total": total,
    }
