"""The section of an agent's page about its heartbeat: settings, the next beat, the last ones, what they used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse

from agent_core.types import Usage
from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, RunRecord, RunState
from automations.models.category import heartbeat_key
from automations.runs.describe import describe_run
from automations.runs.report import event_id
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.agent.sections import Outcome, Section, change_agent
from interfaces.web.pages import person_page
from sessions_app.connections.prices import Cost, costs_of
from sessions_app.connections.prices import Used as Tokens
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, MailboxEvent, Session, Turn, TurnKind

LAST = 10  # beats that are listed
MOST_COUNTED = 5_000  # turns whose tokens are added up
UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
SPANS = (("24 hours", timedelta(hours=24)), ("30 days", timedelta(days=30)))


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One heartbeat, or slots that were not run. `outcome` is the class of its mark, `words` its name."""

    at: datetime
    outcome: str
    words: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Used:
    """What the heartbeat's turns of the last hours or days used. `is_more`: older ones were not counted."""

    span: str
    runs: int
    usage: Usage
    is_more: bool
    cost: Cost


@person_page("POST")
def change_heartbeat(request: HttpRequest, name: str) -> HttpResponse:
    """Switch the heartbeat, change its interval and its active hours."""
    return change_agent(request, name, "heartbeat", lambda: {"heartbeat": _given(request)})


def _given(request: HttpRequest) -> dict[str, Any]:
    seconds = dict(UNITS).get(request.POST.get("unit", ""), 60)
    return {
        "enabled": request.POST.get("enabled") == "yes",
        "interval_seconds": _number(request, "interval", "the interval") * seconds,
        "active_hours": [_number(request, "from", "the first hour"), _number(request, "to", "the last hour")],
    }


def _number(request: HttpRequest, field: str, what: str) -> int:
    given = request.POST.get(field, "").strip()
    if not (given.isascii() and given.isdigit() and len(given) < 9):
        raise BadInput(f"{what} must be a whole number", code="bad_heartbeat")
    return int(given)


def _heartbeat(_request: HttpRequest, agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    job = CronJob.objects.filter(agent=agent, system_event=HEARTBEAT).select_related("clock").first()
    stored = _form(agent)
    return {
        "form": {each: outcome.typed.get(each, "") for each in stored} if outcome else stored,
        "stored": stored,
        "units": [unit for unit, _ in UNITS],
        "zone": agent.timezone,
        "next": job.clock.next_run_at if job else None,
        "fault": job.fault if job else "",
        "beats": _last_beats(job) if job else [],
        "used": _used(agent),
    }


def _form(agent: Agent) -> dict[str, Any]:
    seconds, (first, end) = agent.heartbeat["interval_seconds"], agent.heartbeat["active_hours"]
    unit, size = next(each for each in UNITS if seconds % each[1] == 0)
    enabled = "yes" if agent.heartbeat["enabled"] else ""
    return {"enabled": enabled, "interval": seconds // size, "unit": unit, "from": first, "to": end}


def _last_beats(job: CronJob) -> list[Beat]:
    runs = list(RunRecord.objects.filter(job=job).order_by("-scheduled_for")[:LAST])
    ids = {event_id(run.turn_id, "None"): run.pk for run in runs if run.turn_id}
    found = MailboxEvent.objects.filter(event_id__in=ids, target__agent_id=job.agent_id)
    delivered = {ids[each] for each in found.values_list("event_id", flat=True)}
    return [_beat(run, job, is_delivered=run.pk in delivered) for run in runs]


def _beat(run: RunRecord, job: CronJob, *, is_delivered: bool) -> Beat:
    outcome, words = run.state, RunState(run.state).label
    if run.state == RunState.SUCCEEDED:
        outcome, words = ("delivered", "Delivered") if is_delivered else ("suppressed", "Suppressed")
    text = describe_run(run, zone_or_utc(job.timezone))
    return Beat(at=run.scheduled_for, outcome=outcome, words=words, text=text)


def _used(agent: Agent) -> list[Used]:
    session = Session.objects.filter(agent=agent, key=heartbeat_key(agent.name)).first()
    turns = Turn.objects.filter(session=session, kind=TurnKind.HEARTBEAT).order_by("-id")
    recent = list(turns.values_list("queued_at", "usage", "model")[:MOST_COUNTED]) if session else []
    now, is_all = datetime.now(UTC), len(recent) < MOST_COUNTED
    spans = [[turn for turn in recent if turn[0] >= now - length] for _, length in SPANS]
    by_model = [_by_model(turns) for turns in spans]
    costs = costs_of(_priced(each, agent.owner_id) for each in by_model)
    return [
        Used(
            span=span,
            runs=len(turns),
            usage=sum(used.values(), Usage()),
            is_more=not is_all and len(turns) == len(recent),
            cost=cost,
        )
        for (span, _), turns, used, cost in zip(SPANS, spans, by_model, costs, strict=True)
    ]


def _by_model(turns: Iterable[tuple[datetime, Any, str]]) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    for _, usage, model in turns:
        found[model] = found.get(model, Usage()) + Usage.from_json(usage)
    return found


def _priced(used: Mapping[str, Usage], owner_id: int) -> list[Tokens]:
    return [
        Tokens(
            owner_id=owner_id, model=model, input_tokens=each.input_tokens, output_tokens=each.output_tokens
        )
        for model, each in used.items()
    ]


SECTION = Section(
    anchor="heartbeat",
    title="Heartbeat",
    template="web/agent/heartbeat.html",
    read=_heartbeat,
    has_revision=True,
)
