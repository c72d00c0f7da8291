"""Fire due jobs: turn their due slots into runs and turns, one transaction per batch, with any number of beats.

Lock order: clock, then the inserted rows. Edits and deletes lock the clock first, too, so a slot is fired with the
job either before or after an edit, never in between.
"""

from __future__ import annotations

import time

from django.db import transaction
from django.db.models.functions import Greatest

from automations.firing.due_jobs import claim_due_jobs, due_job_ids, lock_due_clock, read_due_jobs
from automations.firing.insert_runs import announce_turns, insert_runs
from automations.firing.job_batch import Batch, record_fault
from automations.firing.one_by_one import Fired, fire_batch
from automations.firing.placement import attach_sessions, turn_columns
from automations.models import CronJob, JobClock
from automations.schedules.plan import jitter_of

BATCH = 100  # jobs of one transaction


def fire_due_jobs(limit: int = BATCH) -> Fired:
    """Fire up to `limit` due jobs. NothingFires when none of them can be fired."""
    return fire_batch("jobs", limit, fire=_fire, due_ids=due_job_ids, set_aside=set_aside_job)


def _fire(limit: int, only: str | None = None) -> Fired:
    """Claim due jobs, decide about their slots, insert runs and turns; after the commit, announce the turns."""
    with transaction.atomic():
        claimed = claim_due_jobs(limit, only)
        if not claimed:
            return Fired()
        claimed_at = time.monotonic()
        due = read_due_jobs(claimed)
        batch = Batch(due.now)
        batch.decide(attach_sessions(due.jobs), turn_columns)
        batch.write()
        queued = insert_runs(batch.runs, batch.clocks)
    again_at = claimed_at + min(due.wait, batch.wait())
    return Fired(claimed=len(claimed), queued=len(queued), hints=announce_turns(queued), again_at=again_at)


def set_aside_job(job_id: str, reason: str) -> None:
    """Disable a due job whose row makes the batch's statements fail; its slot becomes a skipped run."""
    with transaction.atomic():
        firing = lock_due_clock(job_id)
        if firing is None:
            return
        job = CronJob.objects.get(pk=job_id)
        slot = firing - jitter_of(job)
        JobClock.objects.filter(job_id=job_id).update(next_run_at=None, last_slot=Greatest("last_slot", slot))
        record_fault(job, slot, reason)
