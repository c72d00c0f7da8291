"""Move one slot of an automation to another instant, and back. Lock order, as in beat: clock, then job.

The slot is recorded as skipped (`moved`) at once, and the clock keeps where it went (`moved`), so that its plan has the
new instant in place of the slot. There it is a slot as any other: it becomes one run of the automation.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from automations.exceptions import BadJob, NothingToMove
from automations.jobs.clock import (
    counted_to,
    current_plan,
    database_now,
    moved_slots,
    notify_beats,
    replan,
)
from automations.jobs.edit import future_time, lock_job, save_columns, update_job
from automations.jobs.skip import must_be_bound
from automations.models import CronJob, JobClock, RunRecord, ScheduleKind
from automations.runs.describe import when
from automations.runs.skips import TICK, Gap, GapReason, record_gap
from automations.schedules.plan import accounted_to, jitter_of
from automations.schedules.zone_files import zone_or_utc

MOST_MOVED = 50  # slots of one automation that are still to come
FARTHEST = timedelta(days=366)  # from now, as far as Upcoming shows


def move_slot(job_id: str, *, slot: str, to: str, revision: int | None = None) -> CronJob:
    """Run the slot at another ISO time instead, once; a moved one is named by where it is now, and may be moved back.

    BadJob, JobNotFound, ProtectedJob; NothingToMove when no slot is planned then; RevisionConflict when `revision` is
    not the job's.
    """
    with transaction.atomic():
        clock, job = lock_job(job_id, revision)
        must_be_bound(job)
        now = database_now()
        zone = job.agent.timezone
        at, there = future_time(slot, zone, now, "slot"), future_time(to, zone, now, "to")
        if at is None or there is None or there > now + FARTHEST:
            raise BadJob(f"`to` must be a time within {FARTHEST.days} days", code="bad_to")
        _must_be_planned(clock, job, at, now)
        if there <= (counted_to(clock, now) or now):
            raise BadJob(f"runs up to {_text(job, there)} were skipped or lie in a pause", code="bad_to")
        if job.schedule_kind == ScheduleKind.AT:
            return update_job(job_id, {"schedule": {"kind": ScheduleKind.AT, "at": there.isoformat()}})
        moved = moved_slots(clock)
        if moved.get(there) == at:
            RunRecord.objects.filter(job=job, scheduled_for=there, reason=GapReason.MOVED).take_back()
            del moved[there]
        else:
            _must_be_free(clock, job, there)
            gap = Gap(reason=GapReason.MOVED, slots_from=at, slots_to=at, count=1)
            record_gap(job, gap, moved_to=there)
            moved[at] = there
        _keep(clock, moved, now - jitter_of(job))
        replan(clock, job, now)
        _must_come(clock, job, there)
        save_columns(job, {})
        transaction.on_commit(notify_beats, robust=True)
    job.clock = clock
    return job


def _keep(clock: JobClock, moved: dict[datetime, datetime], since: datetime) -> None:
    """Store the moves of which something comes later than `since`. BadJob if there are too many."""
    left = {slot: to for slot, to in moved.items() if max(slot, to) > since}
    if len(left) > MOST_MOVED:
        raise BadJob(f"at most {MOST_MOVED} runs of an automation can be moved", code="bad_to")
    clock.moved = {slot.isoformat(): to.isoformat() for slot, to in left.items()} or None


def _must_be_planned(clock: JobClock, job: CronJob, slot: datetime, now: datetime) -> None:
    """NothingToMove unless a run of the slot is to come."""
    plan, firing = current_plan(job, clock), clock.next_run_at
    first = None if firing is None else plan.first_slot(firing, accounted_to(clock.last_slot, now))
    is_planned = first is not None and slot >= first and plan.slots.next(slot - TICK) == slot
    if not is_planned or first is None:
        raise NothingToMove(f"no run is planned at {_text(job, slot)}")
    _check_runs_left(clock, job, first, slot)


def _check_runs_left(clock: JobClock, job: CronJob, first: datetime, slot: datetime) -> None:
    plan = current_plan(job, clock)
    if plan.runs_left is not None and plan.slots.count(first - TICK, slot, plan.runs_left) is None:
        raise NothingToMove(f"its last run comes before {_text(job, slot)}")


def _must_be_free(clock: JobClock, job: CronJob, to: datetime) -> None:
    """BadJob when the automation has a run at this instant."""
    is_taken = RunRecord.objects.filter(job=job, scheduled_for=to).exists()
    if is_taken or current_plan(job, clock).slots.next(to - TICK) == to:
        raise BadJob(f"it has a run at {_text(job, to)} already", code="bad_to")


def _must_come(clock: JobClock, job: CronJob, to: datetime) -> None:
    """BadJob when the plan would not come to the moved slot."""
    if current_plan(job, clock).slots.next(to - TICK) != to:
        raise BadJob(f"at {_text(job, to)} it is paused or has ended", code="bad_to")
    if clock.next_run_at is not None:
        _check_runs_left(clock, job, min(clock.next_run_at - jitter_of(job), to), to)


def _text(job: CronJob, instant: datetime) -> str:
    return when(instant, zone_or_utc(job.timezone))
