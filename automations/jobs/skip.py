"""Skip the next slots of an automation, and take that back. Lock order, as in beat: clock, then job.

Skipped slots are recorded at once, and the clock keeps the last of them (`skipped_to`), so that nothing that plans anew
(an edit, a resume, new zone data) makes one of them due again.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from automations.exceptions import BadJob, JobNotFound, NothingToSkip, ProtectedJob, TooManyJobs
from automations.jobs.clock import counted_to, current_plan, database_now, notify_beats
from automations.jobs.edit import check_limit, future_time, lock_job, lock_session, save_columns
from automations.jobs.validate import check_quota
from automations.models import CatchUp, CronJob, JobClock, RunRecord, RunState
from automations.models.job import Category, category
from automations.runs.skips import TICK, Gap, GapReason, gap_between, record_gap
from automations.schedules.plan import JobPlan, accounted_to

MOST_SKIPPED = 100  # slots in one request; up to a time there may be more


def skip_slots(
    job_id: str, *, slots: int | None = None, until: str | None = None, revision: int | None = None
) -> Gap:
    """Skip so many slots, or all before an ISO time. Slots that are due but not fired are the first of them.

    Returns the slots. They do not count as runs, and runs that were fired go on. BadJob, JobNotFound, ProtectedJob,
    NothingToSkip; RevisionConflict when `revision` is not the job's.
    """
    if (slots is None) == (until is None):
        raise BadJob("give either `slots` or `until`", code="bad_skip")
    if slots is not None and not 1 <= slots <= MOST_SKIPPED:
        raise BadJob(f"`slots` must be from 1 to {MOST_SKIPPED}", code="bad_skip")
    with transaction.atomic():
        clock, job = lock_job(job_id, revision)
        must_be_bound(job)
        now = database_now()
        before = future_time(until, job.agent.timezone, now, "until")
        plan = current_plan(job, clock)
        first = _next_slot(clock, job, plan, now)
        last = _nth(plan, job, first, slots, now) if slots else _before(plan, first, before)
        gap = gap_between(plan.slots, first, last, GapReason.SKIPPED_BY_USER)
        record_gap(job, gap)
        clock.skipped_to, clock.next_run_at = last, plan.next_firing(last)
        clock.save(update_fields=["skipped_to", "next_run_at"])
        save_columns(job, {})
        transaction.on_commit(notify_beats, robust=True)
    return gap


def unskip(job_id: str, *, since: datetime | None = None, revision: int | None = None) -> CronJob:
    """Take skips back: of the slots that a person has skipped, those from `since` on that are still to come may run.

    Without `since`: all that are still to come. Those before it stay skipped. JobNotFound, ProtectedJob, NothingToSkip;
    TooManyJobs, SessionClosed when the job had no slot left; RevisionConflict when `revision` is not the job's.
    """
    with transaction.atomic():
        clock, job = lock_job(job_id, revision)
        must_be_bound(job)
        now = database_now()
        after = now if since is None or since <= now else since - TICK
        if clock.skipped_to is None or clock.skipped_to <= after:
            raise NothingToSkip("no skipped slot is still to come")
        plan, had_none = current_plan(job, clock), clock.next_run_at is None
        clock.skipped_to = _shorten_gaps(job, plan, after)
        if job.enabled:
            clock.next_run_at = plan.next_firing(max(now, counted_to(clock, now) or now))
        clock.save(update_fields=["skipped_to", "next_run_at"])
        save_columns(job, {})
        if had_none and clock.next_run_at is not None and job.session_id is not None:
            check_limit(lock_session(job.session_id), besides=job.pk)
            check_quota(job, TooManyJobs)
        transaction.on_commit(notify_beats, robust=True)
    job.clock = clock
    return job


def _shorten_gaps(job: CronJob, plan: JobPlan, after: datetime) -> datetime | None:
    """Remove the slots later than `after` from those that a person has skipped. Returns the last one that is left."""
    skipped = RunRecord.objects.filter(
        job=job, state=RunState.SKIPPED, reason=GapReason.SKIPPED_BY_USER, slots_from__isnull=False
    )
    skipped.filter(slots_from__gt=after).take_back()
    last = skipped.order_by("-scheduled_for").first()
    if last is None or last.slots_from is None:
        return None
    if last.slots_to is None or last.slots_to <= after:
        return last.slots_to
    to = plan.slots.last(last.slots_from, after) or last.slots_from
    gap = gap_between(plan.slots, last.slots_from, to, GapReason.SKIPPED_BY_USER)
    RunRecord.objects.extend_gap(last.pk, to, gap.count)
    return to


def must_be_bound(job: CronJob) -> None:
    """ProtectedJob for a system job, JobNotFound for another one that is no automation."""
    match category(job):
        case Category.SYSTEM:
            raise ProtectedJob
        case Category.BOUND:
            return
    raise JobNotFound


def _next_slot(clock: JobClock, job: CronJob, plan: JobPlan, now: datetime) -> datetime:
    if not job.enabled:
        raise NothingToSkip("the automation is paused")
    if until := clock.pause_at(now):
        raise NothingToSkip(f"the automation is paused until {until.isoformat()}")
    firing = clock.next_run_at
    slot = None if firing is None else plan.first_slot(firing, accounted_to(clock.last_slot, now))
    if slot is None:
        raise NothingToSkip("the automation has no more runs")
    return slot


def _nth(plan: JobPlan, job: CronJob, first: datetime, slots: int, now: datetime) -> datetime:
    """The last of `slots` slots from `first` on; the schedule's last slot if there are fewer."""
    last = first
    if job.catch_up != CatchUp.ALL:  # all due slots together would become one run
        last = plan.slots.last(first, now - plan.jitter) or first
    for _ in range(slots - 1):
        following = plan.slots.next(last)
        if following is None:
            break
        last = following
    return last


def _before(plan: JobPlan, first: datetime, until: datetime | None) -> datetime:
    if until is None or first >= until:
        raise NothingToSkip("the automation has no slot before this time")
    return plan.slots.last(first, until - TICK) or first
