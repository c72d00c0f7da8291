"""Slots that are not run: each decision not to run is a row with its reason (rule 4.5)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models.functions import Greatest, Now

from automations.due import Due, lock_one
from automations.jobs import internal_key
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.plan import jitter_of, plan_of
from automations.schedule import ScheduleError, next_slot
from automations.slots import Gap, GapReason, run_id


def record_gaps(gaps: Iterable[tuple[Due, Gap]]) -> None:
    """Record what is not run, job by job."""
    for due, gap in gaps:
        skip(due.job, gap)


def skip(job: CronJob, gap: Gap, error_detail: str = "") -> None:
    """One SKIPPED run for consecutive slots with one reason: the last one grows, or a new one begins."""
    last = RunRecord.objects.filter(job_id=job.pk).order_by("-scheduled_for").first()
    if last is not None and _continues(job, last, gap):
        before = Gap(
            reason=gap.reason,
            slots_from=last.slots_from or last.scheduled_for,
            slots_to=last.slots_to or last.scheduled_for,
            count=last.slots_count,
        )
        joined = before.and_then(gap)
        RunRecord.objects.filter(pk=last.pk).update(slots_to=joined.slots_to, slots_count=joined.count)
        return
    run = RunRecord(
        run_id=run_id(job.pk, gap.slots_from),
        job_id=job.pk,
        session_id=job.session_id,
        session_key=job.session.key if job.session else internal_key(job),
        scheduled_for=gap.slots_from,
        state=RunState.SKIPPED,
        reason=gap.reason,
        slots_from=gap.slots_from,
        slots_to=gap.slots_to,
        slots_count=gap.count,
        finished_at=Now(),
        error_detail=error_detail[:2000],
    )
    RunRecord.objects.bulk_create([run], ignore_conflicts=True)


def _continues(job: CronJob, last: RunRecord, gap: Gap) -> bool:
    """The gap begins at the very slot after the last run, which is a gap of the same reason."""
    if last.state != RunState.SKIPPED or last.reason != gap.reason or last.slots_from is None:
        return False
    try:
        return next_slot(plan_of(job, 0).slots, last.slots_to or last.slots_from) == gap.slots_from
    except ScheduleError:
        return False  # what is being recorded is that the schedule cannot be read


def record_faults(faults: Iterable[tuple[Due, str]]) -> None:
    """Set jobs aside with the reason; the slot that showed the fault is a skipped run."""
    for due, reason in faults:
        _fault(due.job, due.next_run_at - jitter_of(due.job), reason)


def _fault(job: CronJob, slot: datetime, reason: str) -> None:
    skip(
        job,
        Gap(reason=GapReason.SCHEDULE_ERROR, slots_from=slot, slots_to=slot, count=1),
        error_detail=reason,
    )
    CronJob.objects.filter(pk=job.pk).update(enabled=False, fault=reason[:2000])


def set_aside(job_id: str, reason: str) -> None:
    """Take a job out of firing whose row breaks the batch's own statements."""
    with transaction.atomic():
        firing = lock_one(job_id)
        if firing is None:
            return
        job = CronJob.objects.get(pk=job_id)
        slot = firing - jitter_of(job)
        JobClock.objects.filter(job_id=job_id).update(next_run_at=None, last_slot=Greatest("last_slot", slot))
        _fault(job, slot, reason)
