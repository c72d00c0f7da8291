"""Fire due jobs: turn their due slots into runs and turns, one transaction for each batch, with any number of beats.

Lock order: clock, then the inserted rows. Edits and deletes also lock the clock first, so a slot is fired with the
job either before or after an edit, never in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import structlog
from django.db.models import Count, DateTimeField, F, Func, Q
from django.db.models.functions import Greatest

from automations.exceptions import ScheduleError
from automations.firing.decide import Decision, decide, nothing_due, skip_due
from automations.firing.insert_runs import insert_runs, lag_ms
from automations.firing.one_by_one import Fired, fire_batch
from automations.firing.placement import internal_sessions, skip_reason, turn_columns, turn_limits
from automations.firing.retries import supersede
from automations.heartbeats.readiness import InternalSession
from automations.jobs.clock import current_plan
from automations.models import CronJob, ExecutionMode, JobClock, RunRecord, RunState
from automations.models.health import health_of
from automations.models.job import is_of_people
from automations.runs.health import pause_after_commit
from automations.runs.report import report_paused
from automations.runs.skips import LATE_AFTER, Gap, GapReason, record_gap, run_id
from automations.schedules.plan import JobPlan, accounted_to, jitter_of
from sessions_app.failures import log_failure
from sessions_app.limits import quotas
from sessions_app.models import TurnKind, TurnState
from sessions_app.models.session import NOBODY
from sessions_app.models.turn import OPEN_STATES
from sessions_app.spending import accounts

log = structlog.get_logger(__name__)

BATCH = 250  # jobs of one transaction

# When the transaction began. For a plain now() PostgreSQL may plan to sort the due rows: after an outage each batch
# would read all of them. It does not know the result of a subquery, so it reads the index in order, up to the limit.
NOW = Func(template="(SELECT now())", output_field=DateTimeField())


@dataclass(frozen=True, kw_only=True)
class DueJob:
    """A job whose clock is locked. `session`: the one of a system or legacy job, if it exists.

    `open`: its runs whose turn is queued or running; `waiting`: those that have not begun; `retrying`: its runs that
    wait for another attempt.
    """

    job: Any  # a CronJob with what `_read` annotates
    session: InternalSession | None
    open: int
    waiting: int
    retrying: int


class NewRun(NamedTuple):
    """A slot that runs, with the columns of its RunRecord that follow from its job."""

    due: DueJob
    slot: datetime
    columns: dict[str, Any]


def fire_due_jobs(limit: int = BATCH) -> Fired:
    """Fire up to `limit` due jobs. NothingFires when none of them can be fired."""
    return fire_batch("jobs", lambda: _claim(limit), fire=_fire, set_aside=_set_aside_clock)


def _claim(limit: int) -> list[Any]:
    """Lock the clocks of due jobs. Clocks that another beat or an edit has locked are left out.

    Routines that a running heartbeat has registered are left out until it has ended (rule 5.6). Inline routines wait
    for the heartbeat anyway.
    """
    due = JobClock.objects.filter(inline=False, next_run_at__lte=NOW).order_by("next_run_at")
    # no_key: a delete of what a job refers to checks the keys of its runs, which must not wait for a batch
    locked = due.select_for_update(skip_locked=True, no_key=True)
    clocks = list(locked.annotate(now=NOW)[:limit])
    registering = CronJob.objects.filter(
        pk__in=[clock.pk for clock in clocks],
        created_by_turn__kind=TurnKind.HEARTBEAT,
        created_by_turn__state=TurnState.RUNNING,
    )
    held = set(registering.values_list("pk", flat=True))
    return [clock for clock in clocks if clock.pk not in held]


def _fire(claimed: Sequence[Any]) -> list[Any]:
    """Insert the runs and turns of jobs with locked clocks. Returns what `announce_turns` takes."""
    runs = account_for([clock.pk for clock in claimed], claimed[0].now)
    return insert_runs([run.columns | turn_columns(run.due.job, run.slot, run.due.session) for run in runs])


def account_for(job_ids: Sequence[str], now: datetime) -> list[NewRun]:
    """Decide about the due slots of jobs with locked clocks, move the clocks and store what is skipped.

    Returns the slots that run. A job for which the decision fails is set aside, so that it does not stop the others.
    """
    runs: list[NewRun] = []
    moved, superseded = [], []
    for due in _read(job_ids):
        job = due.job
        try:
            plan = current_plan(job, job.clock)
            decision = _decide(due, plan, now)
            new = [NewRun(due, slot, _run(job, plan, slot, now)) for slot in decision.run]
            # the clock shows the time of firing, which includes jitter
            firing = plan.firing_of(decision.next_run_at, runs=len(new))
        except Exception as error:  # noqa: BLE001 - bad data can raise anything
            log_failure(log, "job_set_aside", error, (ScheduleError,), job=job.pk, reason=str(error))
            set_aside(job, str(error))
            continue
        for gap in decision.skipped:
            record_gap(job, gap)
        if new and due.retrying:
            superseded.append(job.pk)
        runs += new
        clock = job.clock
        clock.next_run_at = firing
        # `last_slot` never goes back
        clock.last_slot = max(filter(None, (clock.last_slot, decision.accounted_to)), default=None)
        clock.runs_started += len(new)
        moved.append(clock)
    supersede(superseded)
    JobClock.objects.bulk_update(moved, ["next_run_at", "last_slot", "runs_started"])
    return runs


def _read(job_ids: Sequence[str]) -> list[DueJob]:
    """Read jobs after the claim, so that every edit that was committed before the clock was locked is seen."""
    jobs = (
        CronJob.objects.filter(pk__in=job_ids)
        .select_related("clock", "health")
        .annotate(
            agent_name=F("agent__name"),
            session_state=F("session__state"),
            owner_is_active=F("agent__owner__is_active"),
            owner_is_full=quotas.is_full("agent__owner_id"),
            is_stopped=accounts.is_stopped("agent_id", "pk"),
        )
    )
    is_open = Q(turn__state__in=OPEN_STATES)
    begun = RunRecord.objects.open().filter(job_id__in=job_ids).values("job_id")
    counts: dict[str, Any] = {
        row["job_id"]: row
        for row in begun.annotate(
            open=Count("turn", filter=is_open),
            waiting=Count("turn", filter=Q(turn__state=TurnState.QUEUED, state=RunState.QUEUED)),
            retrying=Count("not_before"),
        )
    }
    sessions = internal_sessions(jobs)
    none = {"open": 0, "waiting": 0, "retrying": 0}
    return [
        DueJob(
            job=job, session=sessions.get(job.pk), **{name: counts.get(job.pk, none)[name] for name in none}
        )
        for job in jobs
    ]


def _decide(due: DueJob, plan: JobPlan, now: datetime) -> Decision:
    job = due.job
    slot = plan.first_slot(job.clock.next_run_at, accounted_to(job.clock.last_slot, now))
    is_paused = job.clock.pause_at(now) is not None
    now -= plan.jitter
    if slot is None or slot > now:
        return nothing_due(slot)
    reason = skip_reason(job, due.session)
    if reason is None and is_paused and now - slot > LATE_AFTER:
        reason = GapReason.MISSED  # it was due before the pause
    if reason is None and _backs_off(job, now):
        reason = GapReason.BACKOFF
    if reason is not None:
        return skip_due(plan.slots, slot, now, reason)
    # a run of an isolated routine that waits for a worker is no overlap
    is_isolated = job.execution_mode == ExecutionMode.ISOLATED
    return decide(
        schedule=plan.slots,
        next_run_at=slot,
        now=now,
        catch_up=job.catch_up,
        overlap=job.overlap,
        previous_open=due.open > (due.waiting if is_isolated else 0),
        waiting=due.waiting,
        catch_up_queues=True,  # otherwise the first slot caught up would make all later ones overlap
    )


def _backs_off(job: Any, now: datetime) -> bool:
    """Whether the job has failed too often to run now. A job that keeps failing is paused after the commit."""
    health = health_of(job)
    if health.is_hopeless:
        pause_after_commit(job.pk)
    return health.is_hopeless or (health.backoff_until is not None and now < health.backoff_until)


def _run(job: CronJob, plan: JobPlan, slot: datetime, now: datetime) -> dict[str, Any]:
    names = ("name", "message", "timezone", "revision", "max_retry")
    return {
        "run_id": run_id(job.pk, slot),
        "job_id": job.pk,
        "owner_id": job.owner_id if is_of_people(job) else NOBODY,
        "scheduled_for": slot,
        "lag_ms": lag_ms(now - plan.jitter - slot),
        "snapshot": {
            **{name: getattr(job, name) for name in names},
            "schedule": plan.schedule.to_json(zone=job.timezone),
            "policy": turn_limits(job),
        },
    }


def _set_aside_clock(clock: JobClock, reason: str) -> None:
    set_aside(CronJob.objects.select_related("clock", "session", "agent").get(pk=clock.pk), reason)


def set_aside(job: Any, reason: str) -> None:
    """Disable a job with a locked clock, store the reason and tell its owner; the slot becomes a skipped run."""
    slot = job.clock.next_run_at - jitter_of(job)
    JobClock.objects.filter(job=job).update(next_run_at=None, last_slot=Greatest("last_slot", slot))
    gap = Gap(reason=GapReason.SCHEDULE_ERROR, slots_from=slot, slots_to=slot, count=1)
    record_gap(job, gap, error_detail=reason)
    CronJob.objects.set_aside([job.pk], reason)
    report_paused(job)
