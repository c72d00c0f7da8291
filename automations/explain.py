"""Why the last slots of an automation did or did not run, what holds now, and when the next ones are. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import pairwise
from statistics import median
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q

from automations.clocks import database_now
from automations.exceptions import JobNotFound
from automations.jobs import schedule_of
from automations.models import CronJob, Overlap, RunRecord, RunState, ScheduleKind
from automations.plan import plan_of
from automations.run_words import Waiting, span, text_of, when
from automations.schedule import ScheduleError, last_slot_until, next_slot
from automations.schedule_words import changes_ahead, describe
from automations.selectors import automation_of, automations
from automations.slots import GapReason
from automations.zone_files import zone_or_utc
from sessions_app.models import SessionState, Turn, TurnKind, TurnState

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
    TurnKind.SYSTEM: "the server's own work",
}


@dataclass(frozen=True, kw_only=True)
class ExplainedRun:
    """A run and its sentence."""

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
    """Instants are in the zone of the schedule."""

    words: str
    timezone: str
    state: str
    now: str
    next: tuple[datetime, ...]
    last: tuple[ExplainedRun, ...]
    warnings: tuple[str, ...]


def explain(user: AbstractBaseUser, job_id: str) -> Explanation:
    """One of the user's automations. JobNotFound."""
    job = automations(user).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound
    now, zone = database_now(), zone_or_utc(job.timezone)
    runs = list(RunRecord.objects.filter(job=job).order_by("-scheduled_for").only(*_COLUMNS)[:LAST])
    waiting = _waiting(job)
    coming = _coming(job, now)
    return Explanation(
        words=_words(job),
        timezone=job.timezone,
        state=automation_of(job).state,
        now=_now(job, now, zone, waiting),
        next=tuple(firing.astimezone(zone) for firing in coming),
        last=_last(runs, zone, waiting),
        warnings=tuple(_warnings(job, runs, coming, now)),
    )


def _words(job: CronJob) -> str:
    try:
        return describe(schedule_of(job), zone=zone_or_utc(job.timezone).key)
    except ScheduleError as error:
        return f"a schedule that cannot be read: {error}"


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
            text=text_of(run, zone, waiting=waiting, instead=instead),
        )
        for run, instead in zip(runs, following, strict=False)
    )


def _waiting(job: Any) -> Waiting:
    """What the job's queued runs wait for in their session."""
    if not job.pending:
        return Waiting()
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
    return Waiting(ahead=people + before, queued_at=first.queued_at)


def _busy_with(turn: Turn) -> str:
    if turn.kind == TurnKind.AUTOMATION:
        return f"the automation {turn.metadata.get('automation_name', '')!r}"
    return _BUSY_WITH[TurnKind(turn.kind)]


def _coming(job: Any, now: datetime) -> list[datetime]:
    """The firings to come: after now, within the end date and the number of runs, each with its jitter."""
    firing = job.clock.next_run_at
    if firing is None or not job.enabled or job.session.state != SessionState.OPEN:
        return []
    try:
        plan = plan_of(job, job.clock.runs_started)
        slot, runs = firing - plan.jitter, 0
        if firing <= now:  # what is due is one run; what comes is after it
            slot = last_slot_until(plan.slots, slot, now - plan.jitter) or slot
            runs, firing = 1, plan.firing_of(next_slot(plan.slots, slot), runs=1)
        found: list[datetime] = []
        while firing is not None and len(found) < NEXT:
            found.append(firing)
            runs += 1
            firing = plan.firing_of(next_slot(plan.slots, firing - plan.jitter), runs=runs)
    except ScheduleError:
        return []
    return found


def _now(job: Any, now: datetime, zone: tzinfo, waiting: Waiting) -> str:
    """One sentence: the first of these that holds."""
    if job.fault:
        return f"Set aside: {_fault(job, now)}"
    for state in (RunState.RUNNING, RunState.QUEUED):
        run = RunRecord.objects.filter(job=job, state=state).order_by("scheduled_for").first()
        if run is not None:
            return text_of(run, zone, waiting=waiting)
    if not job.enabled:
        return f"Paused since {when(job.clock.planned_from, zone)}."
    if job.session.state != SessionState.OPEN:
        return f"The conversation is {job.session.state}: its slots are not run."
    firing = job.clock.next_run_at
    if firing is None:
        return f"Done: {_done(job, zone)}."
    if firing <= now:
        return f"Due since {when(firing, zone)}: beat has not fired it yet, it is {span(now - firing)} late."
    return f"Waits for its next slot, which is fired at {when(firing, zone)}."


def _fault(job: CronJob, now: datetime) -> str:
    """What is wrong, when a person can see it; whatever else was raised is for operators."""
    try:
        plan_of(job, 0).next_firing(now)
    except ScheduleError as error:
        return f"{error} Give it a schedule that can be read."
    return (
        "it could not be fired. Switch it on again to try once more; operators find the cause in the admin."
    )


def _done(job: Any, zone: tzinfo) -> str:
    if job.schedule_kind == ScheduleKind.AT and job.at:
        return f"its one slot was {when(job.at, zone)}"
    if job.max_runs is not None and job.clock.runs_started >= job.max_runs:
        return f"all of its {job.max_runs} runs were started"
    if job.ends_at is not None:
        return f"no slot lies before its end date {when(job.ends_at, zone)}"
    return "its schedule has no further slot"


def _warnings(job: Any, runs: Sequence[RunRecord], coming: list[datetime], now: datetime) -> list[str]:
    if job.fault or not job.enabled:
        return []
    zone = zone_or_utc(job.timezone)
    return [
        *_ending(job, coming, zone),
        *_changes(job, coming, now),
        *_dense(job, runs, coming),
    ]


def _ending(job: Any, coming: list[datetime], zone: tzinfo) -> list[str]:
    if job.schedule_kind == ScheduleKind.AT or job.session.state != SessionState.OPEN:
        return []
    if not coming:
        return ["This schedule does not fire again."] if job.clock.next_run_at is None else []
    return [f"It is fired for the last time at {when(coming[-1], zone)}."] if len(coming) < NEXT else []


def _changes(job: Any, coming: list[datetime], now: datetime) -> list[str]:
    if not coming:
        return []
    return changes_ahead(schedule_of(job), zone=zone_or_utc(job.timezone).key, after=now, shown_to=coming[-1])


def _dense(job: Any, runs: Sequence[RunRecord], coming: list[datetime]) -> list[str]:
    """Slots that come faster than the work is done."""
    took = [run.duration_ms for run in runs if run.duration_ms is not None]
    apart = min((later - earlier for earlier, later in pairwise(coming)), default=None)
    if took and apart is not None and median(took) > apart.total_seconds() * 1000:
        lost = "are skipped" if job.overlap == Overlap.SKIP else "wait, and further ones are skipped"
        usual = span(apart * (median(took) / 1000 / apart.total_seconds()))
        return [
            f"Slots come {span(apart)} apart and a run takes about {usual}: slots {lost} while one goes on."
        ]
    skipped = [run.slots_count for run in runs if run.reason in (GapReason.OVERLAP, GapReason.QUEUE_FULL)]
    if not skipped:
        return []
    count = "more than 1,000" if None in skipped else str(sum(each or 0 for each in skipped))
    return [f"Of the last slots {count} were skipped, because the run before was still going on."]
