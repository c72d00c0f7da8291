"""The section of an agent's page about its heartbeat: settings, the next beat, the last ones, what they used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest

from agent_core.types import Usage
from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, RunRecord, RunState
from automations.models.category import heartbeat_key
from automations.runs.describe import describe_run
from automations.runs.report import event_id
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.pages import FormResult, given_revision, whole_number
from sessions_app.agents.edit import update_agent
from sessions_app.connections.prices import Used, costs_of
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, MailboxEvent, Turn, TurnKind

LARGEST = 99_999_999
LAST = 10  # beats that are listed
MOST_COUNTED = 5_000  # turns whose tokens are added up
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
    job = CronJob.objects.filter(agent=agent, system_event=HEARTBEAT).select_related("clock").first()
    seconds, (first, end) = agent.heartbeat["interval_seconds"], agent.heartbeat["active_hours"]
    unit, size = next(each for each in UNITS if seconds % each[1] == 0)
    enabled = "yes" if agent.heartbeat["enabled"] else ""
    stored = {"enabled": enabled, "interval": seconds // size, "unit": unit, "from": first, "to": end}
    return {
        "form": outcome.shown(stored),
        "stored": stored,
        "units": [unit for unit, _ in UNITS],
        "zone": agent.timezone,
        "next": job.clock.next_run_at if job else None,
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
    """The usage of the heartbeat's turns in the last hours and days. `is_more`: older ones were not counted."""
    turns = Turn.objects.filter(session__agent=agent, session__key=heartbeat_key(agent.name))
    of_heartbeat = turns.filter(kind=TurnKind.HEARTBEAT).order_by("-id")
    recent = list(of_heartbeat.values_list("queued_at", "usage", "model")[:MOST_COUNTED])
    now, is_all = datetime.now(UTC), len(recent) < MOST_COUNTED
    found = []
    for span, length in SPANS:
        used = [(Usage.from_json(usage), model) for at, usage, model in recent if at >= now - length]
        [cost] = costs_of([_by_model(used, agent.owner_id)])
        found.append(
            {
                "span": span,
                "runs": len(used),
                "usage": sum((usage for usage, _ in used), Usage()),
                "is_more": not is_all and len(used) == len(recent),
                "cost": cost,
            }
        )
    return found


def _by_model(used: Iterable[tuple[Usage, str]], owner_id: int) -> Iterator[Used]:
    found: dict[tuple[str, bool], Usage] = {}
    for usage, model in used:
        key = (model, bool(usage.micro_usd))
        found[key] = found.get(key, Usage()) + usage
    for (model, _), usage in found.items():
        yield Used(
            owner_id=owner_id,
            model=model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            micro_usd=usage.micro_usd,
        )
