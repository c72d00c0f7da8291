"""How an edit changes a job's clock: slots due before it are recorded as skipped, later slots count from now."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from django.db import connection

from automations.jobs.changed_slots import ChangedSlots
from automations.models import CronJob, JobClock
from automations.runs.skips import TICK, GapReason, gap_between, record_gap
from automations.schedules.plan import JobPlan, accounted_to, plan_of
from automations.schedules.slots import EndingSchedule, Slots
from sessions_app.postgres.notify import JOBS, publisher


def database_now() -> datetime:
    """The database's time, which firing uses. Read it after locking, so that no slot fired meanwhile lies ahead."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    return row[0]  # type: ignore[no-any-return]


def current_plan(job: CronJob, clock: JobClock) -> JobPlan:
    """The job's plan as people have changed single slots of it: without a pause to come, and with moved slots moved."""
    plan, moved = plan_of(job, clock.runs_started), moved_slots(clock)
    begin = clock.paused_from and clock.paused_from - plan.jitter  # nothing is fired from then on
    pause = (begin, clock.paused_until) if begin and clock.paused_until else None
    if pause is None and not moved:
        return plan
    slots: Slots = ChangedSlots(slots=plan.slots, moved=moved, pause=pause)
    if job.ends_at is not None:
        slots = EndingSchedule(slots=slots, ends_at=job.ends_at)
    return replace(plan, slots=slots)


def moved_slots(clock: JobClock) -> dict[datetime, datetime]:
    """The slots that a person has moved, and where each is now."""
    read = datetime.fromisoformat
    return {read(slot): read(to) for slot, to in (clock.moved or {}).items()}


def start_clock(job: CronJob, now: datetime) -> None:
    """Create the clock of a new job, whose slots count from now."""
    first = plan_of(job, 0).next_firing(now) if job.enabled else None
    job.clock = JobClock.objects.create(job=job, next_run_at=first, planned_from=now)


def skip_overdue_slots(clock: JobClock, job: CronJob, now: datetime) -> None:
    """Record slots of the old plan that are due but were not fired as one skipped run."""
    if clock.next_run_at is None:
        return
    plan = current_plan(job, clock)
    first = plan.first_slot(clock.next_run_at, accounted_to(clock.last_slot, now))
    if first is None or first > now:
        return
    last = plan.slots.last(first, now) or first
    record_gap(job, gap_between(plan.slots, first, last, GapReason.EDITED))
    clock.last_slot = max(last, clock.last_slot or last)
    clock.save(update_fields=["last_slot"])


def counted_to(clock: JobClock, now: datetime) -> datetime | None:
    """The instant up to which no slot is planned, as all were run, skipped or lie in a pause; None: there is none."""
    pause = clock.paused_until and not clock.paused_from and clock.paused_until - TICK
    ends = (accounted_to(clock.last_slot, now), clock.skipped_to, pause)
    return max((each for each in ends if each), default=None)


def restart_clock(clock: JobClock, job: CronJob, now: datetime) -> None:
    """Set the next slot after now: paused time is never caught up, and no recorded slot is repeated."""
    last = counted_to(clock, now)
    after = now if last is None else max(now, last)
    clock.next_run_at = current_plan(job, clock).next_firing(after) if job.enabled else None
    clock.planned_from = now
    clock.save(update_fields=["next_run_at", "planned_from", "paused_from", "paused_until"])


def replan(clock: JobClock, job: CronJob, now: datetime) -> bool:
    """Set the next firing after single slots or a pause to come were changed; a slot that is due stays due.

    Returns whether the job had no slot left before and has one now.
    """
    idle = clock.next_run_at is None
    if job.enabled and (clock.next_run_at is None or clock.next_run_at > now):
        plan = current_plan(job, clock)
        last = max(counted_to(clock, now) or clock.planned_from, clock.planned_from)
        clock.next_run_at = plan.next_firing(max(now - plan.jitter, last))
    clock.save(update_fields=["next_run_at", "skipped_to", "paused_from", "paused_until", "moved"])
    return idle and clock.next_run_at is not None


def notify_beats() -> None:
    """Tell every beat that a job was created, edited or brought forward. Call it after the commit."""
    publisher().notify(JOBS, {"changed": True})
