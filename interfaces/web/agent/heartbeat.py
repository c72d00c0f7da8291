"""The section of an agent's page about its heartbeat: settings, the next beat, the last ones, what they used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest

from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, RunRecord, RunState
from automations.models.job import heartbeat_key
from automations.runs.describe import describe_run
from automations.runs.report import event_id
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.pages import FormResult, given_revision, whole_number
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, MailboxEvent, Turn, TurnKind
from sessions_app.reads import usage

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
    """What the heartbeat's turns of the last hours and days used. `is_more`: older ones were not counted."""
    beats = {"session__key": heartbeat_key(agent.name), "kind": TurnKind.HEARTBEAT}
    turns = Turn.objects.filter(session__agent=agent, **beats)
    sums = ((span, usage.total_of(turns, length)) for span, length in SPANS)
    return [{"span": span, "used": used, "is_more": used.turns == usage.MOST_COUNTED} for span, used in sums]
