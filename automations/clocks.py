"""What an edit does to a job's clock: what was due is accounted for, what follows counts from now on."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from automations import gaps
from automations.models import CronJob, JobClock
from automations.plan import accounted_to, plan_of
from automations.schedule import count_slots, last_slot_until
from automations.slots import COUNT_LIMIT, Gap, GapReason


def database_now() -> datetime:
    """The clock that firing goes by. Read after the locks, so that nothing fired in between lies ahead of it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    return row[0]  # type: ignore[no-any-return]


def account_overdue(clock: JobClock, job: CronJob, now: datetime) -> None:
    """Slots that have come but were not fired yet end with the old plan; one skipped run says so."""
    if clock.next_run_at is None:
        return
    plan = plan_of(job, clock.runs_started)
    first = plan.first_slot(clock.next_run_at, accounted_to(clock.last_slot, now))
    if first is None or first > now:
        return
    last = last_slot_until(plan.slots, first, now) or first
    others = count_slots(plan.slots, first, last, COUNT_LIMIT - 1)
    count = None if others is None else others + 1
    gaps.skip(job, Gap(reason=GapReason.EDITED, slots_from=first, slots_to=last, count=count))
    clock.last_slot = max(last, clock.last_slot or last)
    clock.save(update_fields=["last_slot"])


def rewind(clock: JobClock, job: CronJob, now: datetime) -> None:
    """The next slot from now on: paused time is never caught up, and no accounted slot comes again."""
    last = accounted_to(clock.last_slot, now)
    after = now if last is None else max(now, last)
    clock.next_run_at = plan_of(job, clock.runs_started).next_firing(after) if job.enabled else None
    clock.planned_from = now
    clock.save(update_fields=["next_run_at", "planned_from"])
