"""Explain an automation: why its last slots did or did not run, its current state, its next runs. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from statistics import median
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q

from automations.exceptions import JobNotFound
from automations.jobs.clock import database_now
from automations.models import CronJob, Overlap, RunRecord, RunState, ScheduleKind
from automations.runs.describe import Waiting, describe_run, span, when
from automations.runs.skips import GapReason
from automations.schedules.describe import changes_ahead, describe_job
from automations.schedules.plan import plan_of, schedule_of
from automations.schedules.schedule import ScheduleError
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import automations, state_at_end, state_of
from sessions_app.channels.base import why_unserved
from sessions_app.models import Agent, Session, SessionState, Turn, TurnKind, TurnState

NEXT, LAST = 5, 20
_COLUMNS = (
    *("run_id", "scheduled_for", "state", "reason", "slots_from", "slots_to", "slots_count", "attempt"),
    *("not_before", "started_at", "lag_ms", "duration_ms", "turn_id"),
)
_BUSY_WITH = {
    TurnKind.MESSAGE: "a person's message",
    TurnKind.HEARTBEAT: "a heartbeat",
    TurnKind.JOB: "a background job",
    TurnKind.SCHEDULED_MESSAGE: "a scheduled message",
    TurnKind.LEGACY: "a legacy job",
    TurnKind.SYSTEM: "a system job",
}


@dataclass(frozen=True, kw_only=True)
class ExplainedRun:
    """A run, with `text` as one sentence about it."""

    run_id: str
    scheduled_for: datetime
    state: str
    reason: str
    slots_from: datetime | None
    slots_to: datetime | None
    count: int | None
    attempt: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The explanation of one automation. Instants are in the schedule's zone."""

    words: str
    timezone: str
    state: str
    now: str
    next: tuple[datetime, ...]
    last: tuple[ExplainedRun, ...]
    warnings: tuple[str, ...]


def explain(user: AbstractBaseUser, job_id: str) -> Explanation:
    """Explain one of the user's automations. JobNotFound."""
    job = automations(user).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound
    now, zone = database_now(), zone_or_utc(job.timezone)
    runs = list(RunRecord.objects.filter(job=job).order_by("-scheduled_for").only(*_COLUMNS)[:LAST])
    waiting = _waiting(job)
    coming = _coming(job, now)
    return Explanation(
        words=describe_job(job, zone_or_utc(job.timezone).key),
        timezone=job.timezone,
        state=state_of(job),
        now=_now(job, now, zone, waiting),
        next=tuple(firing.astimezone(zone) for firing in coming),
        last=_last(runs, zone, waiting),
        warnings=tuple(_warnings(job, runs, coming, now)),
    )


def _last(runs: Sequence[RunRecord], zone: tzinfo, waiting: Waiting) -> tuple[ExplainedRun, ...]:
    following: list[RunRecord | None] = [None, *runs]
    return tuple(
        ExplainedRun(
            run_id=run.run_id,
            scheduled_for=run.scheduled_for.astimezone(zone),
            state=run.state,
            reason=run.reason,
            slots_from=run.slots_from and run.slots_from.astimezone(zone),
            slots_to=run.slots_to and run.slots_to.astimezone(zone),
            count=run.slots_count,
            attempt=run.attempt,
            text=describe_run(run, zone, waiting=waiting, instead=instead),
        )
        for run, instead in zip(runs, following, strict=False)
    )


def _waiting(job: Any) -> Waiting:
    """What the job's queued runs wait for in their session."""
    if not job.pending:
        return Waiting()
    if not _owner_is_active(job):
        return Waiting(owner_inactive=True)
    own = Turn.objects.filter(runs__job=job, runs__state=RunState.QUEUED, state=TurnState.QUEUED)
    first = own.order_by("due_at", "id").first()
    running = Turn.objects.filter(session=job.session, state=TurnState.RUNNING).first()
    if first is None:
        return Waiting()
    if running is not None:
        return Waiting(busy_with=_busy_with(running), busy_since=running.started_at)
    queue = Turn.objects.filter(session=job.session, state=TurnState.QUEUED, host__isnull=True)
    people = queue.exclude(lane=first.lane).count()
    earlier = Q(due_at__lt=first.due_at) | Q(due_at=first.due_at, id__lt=first.pk)
    before = queue.filter(earlier, lane=first.lane).count()
    at_work = Turn.objects.filter(share_of=first.share_of, state=TurnState.RUNNING)
    behind = first.share_of is not None and at_work.exists()
    return Waiting(ahead=people + before, queued_at=first.queued_at, behind_others=behind)


def _owner_is_active(job: Any) -> bool:
    return Agent.objects.filter(pk=job.agent_id, owner__is_active=True).exists()


def _busy_with(turn: Turn) -> str:
    if turn.kind == TurnKind.AUTOMATION:
        return f"the automation {turn.metadata.get('automation_name', '')!r}"
    return _BUSY_WITH[TurnKind(turn.kind)]


def _coming(job: Any, now: datetime) -> list[datetime]:
    """The next firings after now, with jitter, within the end date and the number of runs."""
    firing = job.clock.next_run_at
    if firing is None or not job.enabled or _why_not_run(job):
        return []
    try:
        plan = plan_of(job, job.clock.runs_started)
        slot, runs = firing - plan.jitter, 0
        if firing <= now:  # all due slots together become one run
            slot = plan.slots.last(slot, now - plan.jitter) or slot
            runs, firing = 1, plan.firing_of(plan.slots.next(slot), runs=1)
        found: list[datetime] = []
        while firing is not None and len(found) < NEXT:
            found.append(firing)
            runs += 1
            firing = plan.firing_of(plan.slots.next(firing - plan.jitter), runs=runs)
    except ScheduleError:
        return []
    return found


def _now(job: Any, now: datetime, zone: tzinfo, waiting: Waiting) -> str:
    """The current state in one sentence."""
    if job.fault:
        return f"Disabled after an error: {_fault(job, now)}"
    for state in (RunState.RUNNING, RunState.QUEUED):
        run = RunRecord.objects.filter(job=job, state=state).order_by("scheduled_for").first()
        if run is not None:
            return describe_run(run, zone, waiting=waiting)
    if not job.enabled:
        return f"Paused since {when(job.clock.planned_from, zone)}."
    if closed := _why_not_run(job):
        return closed
    firing = job.clock.next_run_at
    if firing is None:
        return f"{state_at_end(job, job.last_status).capitalize()}: {_done(job, zone)}."
    if firing <= now:
        return f"Due since {when(firing, zone)}: beat has not fired it yet ({span(now - firing)} late)."
    return f"Next run: {when(firing, zone)}."


def _why_not_run(job: Any) -> str:
    """Why none of its slots are run, whatever its schedule is; empty: they are."""
    if job.session.state != SessionState.OPEN:
        return f"Not run: the conversation is {job.session.state}."
    return "" if _owner_is_active(job) else "Not run: the owner's account is inactive."


def _fault(job: CronJob, now: datetime) -> str:
    """An error in the schedule, which a person may read; any other error is for operators."""
    try:
        plan_of(job, 0).next_firing(now)
    except ScheduleError as error:
        return f"{error} Give it a valid schedule."
    return "it could not be fired. Enable it again to retry; operators find the cause in the admin."


def _done(job: Any, zone: tzinfo) -> str:
    if job.schedule_kind == ScheduleKind.AT and job.at:
        return f"its only run was at {when(job.at, zone)}"
    if job.max_runs is not None and job.clock.runs_started >= job.max_runs:
        return f"all of its {job.max_runs} runs have started"
    if job.ends_at is not None:
        return f"no runs after its end date {when(job.ends_at, zone)}"
    return "its schedule has no more runs"


def _warnings(job: Any, runs: Sequence[RunRecord], coming: list[datetime], now: datetime) -> list[str]:
    if job.fault or not job.enabled:
        return []
    zone = zone_or_utc(job.timezone)
    return [
        *_undeliverable(job.session),
        *_ending(job, coming, zone),
        *_changes(job, coming, now),
        *_dense(job, runs, coming),
    ]


def _undeliverable(session: Session) -> list[str]:
    """Answers that are stored but not sent, because nothing serves their channel or address."""
    route = session.standing_route
    reason = why_unserved(route)
    return [f"Answers cannot be delivered by {route['channel']!r}: {reason}."] if reason else []


def _ending(job: Any, coming: list[datetime], zone: tzinfo) -> list[str]:
    if job.schedule_kind == ScheduleKind.AT or job.session.state != SessionState.OPEN:
        return []
    if not coming:
        return ["This schedule has no more runs."] if job.clock.next_run_at is None else []
    return [f"Last run: {when(coming[-1], zone)}."] if len(coming) < NEXT else []


def _changes(job: Any, coming: list[datetime], now: datetime) -> list[str]:
    if not coming:
        return []
    return changes_ahead(schedule_of(job), zone=zone_or_utc(job.timezone).key, after=now, shown_to=coming[-1])


def _dense(job: Any, runs: Sequence[RunRecord], coming: list[datetime]) -> list[str]:
    """Slots that are closer together than a run takes."""
    took = [run.duration_ms for run in runs if run.duration_ms is not None]
    apart = min((later - earlier for earlier, later in pairwise(coming)), default=None)
    if took and apart is not None and median(took) > apart.total_seconds() * 1000:
        lost = "are skipped" if job.overlap == Overlap.SKIP else "wait or are skipped"
        usual = span(timedelta(milliseconds=median(took)))
        return [
            f"Slots are {span(apart)} apart and a run takes about {usual}: slots {lost} while a run is open."
        ]
    skipped = [run.slots_count for run in runs if run.reason in (GapReason.OVERLAP, GapReason.QUEUE_FULL)]
    if not skipped:
        return []
    count = "more than 1,000" if None in skipped else str(sum(each or 0 for each in skipped))
    return [f"Of the last slots {count} were skipped, because the previous run had not ended."]
