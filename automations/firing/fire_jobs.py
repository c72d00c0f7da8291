"""Fire due jobs: turn their due slots into runs and turns, one transaction per batch, with any number of beats.

Lock order: clock, then the inserted rows. Edits and deletes lock the clock first, too, so a slot is fired with the
job either before or after an edit, never in between.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.functions import Greatest

from automations.firing.due_jobs import DueJob, claim_due_jobs, due_job_ids, lock_due_clock
from automations.firing.insert_runs import announce_turns, insert_runs, lag_ms
from automations.firing.job_batch import Batch, decide_job, record_fault
from automations.firing.one_by_one import Fired, fire_batch
from automations.firing.placement import attach_sessions, turn_columns
from automations.models import CronJob, JobClock
from automations.runs.skips import run_id
from automations.schedules.plan import jitter_of, job_snapshot

BATCH = 100  # jobs of one transaction


def fire_due_jobs(limit: int = BATCH) -> Fired:
    """Fire up to `limit` due jobs. NothingFires when none of them can be fired."""
    return fire_batch("jobs", limit, fire=_fire, due_ids=due_job_ids, set_aside=set_aside_job)


def _fire(limit: int, only: str | None = None) -> Fired:
    """Claim due jobs, decide about their slots, insert runs and turns; after the commit, announce the turns."""
    with transaction.atomic():
        rows = attach_sessions(claim_due_jobs(limit, only))
        if not rows:
            return Fired()
        batch: Batch[dict[str, Any]] = Batch()
        for row in rows:
            with batch.faults_of(row):
                decision = decide_job(row)
                batch.add(row, decision, [_run_and_turn(row, slot) for slot in decision.run])
        batch.write()
        queued = insert_runs(batch.runs)
    return Fired(claimed=len(rows), queued=len(queued), hints=announce_turns(queued))


def _run_and_turn(row: DueJob, slot: datetime) -> dict[str, Any]:
    """One run and its turn, as a row for `insert_runs`."""
    snapshot, identity, turn = job_snapshot(row.job), run_id(row.job.pk, slot), turn_columns(row, slot)
    return {
        "session_key": row.session_key,
        **turn,
        "run_id": identity,
        "job_id": row.job.pk,
        "scheduled_for": slot.isoformat(),
        "snapshot": snapshot,
        "lag_ms": lag_ms(row.now - jitter_of(row.job) - slot),
        "metadata": {**turn["metadata"], "policy": snapshot["policy"]},
        "idempotency_key": f"run:{identity}:1",
    }


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
