"""How an edit changes a job's clock: slots due before it are recorded as skipped, later slots count from now."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from automations.models import CronJob, JobClock
from automations.runs.skips import TICK, GapReason, gap_between, record_gap
from automations.schedules.plan import accounted_to, plan_of
from sessions_app.postgres.notify import JOBS, publisher


def database_now() -> datetime:
    """The database's time, which firing uses. Read it after locking, so that no slot fired meanwhile lies ahead."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    return row[0]  # type: ignore[no-any-return]


def start_clock(job: CronJob, now: datetime) -> None:
    """Create the clock of a new job, whose slots count from now."""
    first = plan_of(job, 0).next_firing(now) if job.enabled else None
    job.clock = JobClock.objects.create(job=job, next_run_at=first, planned_from=now)


def skip_overdue_slots(clock: JobClock, job: CronJob, now: datetime) -> None:
    """Record slots of the old plan that are due but were not fired as one skipped run."""
    if clock.next_run_at is None:
        return
    plan = plan_of(job, clock.runs_started)
    first = plan.first_slot(clock.next_run_at, accounted_to(clock.last_slot, now))
    if first is None or first > now:
        return
    last = plan.slots.last(first, now) or first
    record_gap(job, gap_between(plan.slots, first, last, GapReason.EDITED))
    clock.last_slot = max(last, clock.last_slot or last)
    clock.save(update_fields=["last_slot"])


def counted_to(clock: JobClock, now: datetime) -> datetime | None:
    """The instant up to which no slot is planned, as all were run, skipped or lie in a pause; None: there is none."""
    pause = clock.paused_until and clock.paused_until - TICK
    ends = (accounted_to(clock.last_slot, now), clock.skipped_to, pause)
    return max((each for each in ends if each is not None), default=None)


def restart_clock(clock: JobClock, job: CronJob, now: datetime) -> None:
    """Set the next slot after now: paused time is never caught up, and no recorded slot is repeated."""
    last = counted_to(clock, now)
    after = now if last is None else max(now, last)
    clock.next_run_at = plan_of(job, clock.runs_started).next_firing(after) if job.enabled else None
    clock.planned_from = now
    clock.save(update_fields=["next_run_at", "planned_from", "paused_until"])


def notify_beats() -> None:
    """Tell every beat that a job was created, edited or brought forward. Call it after the commit."""
    publisher().notify(JOBS, {"changed": True})
