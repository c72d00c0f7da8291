"""Take back what a person has skipped, as far as it is still to come."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from automations.exceptions import JobNotFound, NothingToSkip, TooManyJobs
from automations.jobs.clock import counted_to, database_now, notify_beats
from automations.jobs.edit import check_limit, lock_job, lock_session, save_columns
from automations.jobs.validate import check_quota
from automations.models import CronJob, JobClock, RunRecord
from automations.runs.skips import GapReason, gap_between
from automations.schedules.plan import JobPlan, plan_of


def unskip_slots(job_id: str, *, revision: int | None = None) -> CronJob:
    """Have the coming slots run that a person has skipped. Slots that have passed meanwhile stay skipped.

    JobNotFound, TooManyJobs; NothingToSkip when none is to come; RevisionConflict when `revision` is not the job's.
    """
    with transaction.atomic():
        clock, job = lock_job(job_id, revision)
        if job.session_id is None:
            raise JobNotFound
        now = database_now()
        if clock.skipped_to is None or clock.skipped_to <= now:
            raise NothingToSkip("no coming slot of the automation was skipped")
        _bring_forward(clock, job, plan_of(job, clock.runs_started), now)
        save_columns(job, {})
        transaction.on_commit(notify_beats, robust=True)
    job.clock = clock
    return job


def _bring_forward(clock: JobClock, job: CronJob, plan: JobPlan, now: datetime) -> None:
    had_none, clock.skipped_to = clock.next_run_at is None, None
    of_person = RunRecord.objects.filter(job=job, reason=GapReason.SKIPPED_BY_USER, slots_to__gt=now)
    for begun in of_person.filter(scheduled_for__lte=now):
        last = plan.slots.last(begun.scheduled_for, now) or begun.scheduled_for
        gap = gap_between(plan.slots, begun.scheduled_for, last, GapReason.SKIPPED_BY_USER)
        RunRecord.objects.extend_gap(begun.pk, gap.slots_to, gap.count)
    of_person.filter(scheduled_for__gt=now).take_back()
    after = max(now, counted_to(clock, now) or now)
    clock.next_run_at = plan.next_firing(after) if job.enabled else None
    clock.save(update_fields=["skipped_to", "next_run_at"])
    if had_none and clock.next_run_at is not None and job.session_id is not None:
        check_limit(lock_session(job.session_id), besides=job.pk)
        check_quota(job, TooManyJobs)
