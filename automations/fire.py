"""Fire: due slots become runs and turns, in one transaction per batch, with any number of beats.

Lock order: clock, then what is inserted. Edits and deletes take the clock first, too, so a slot is fired either
with the job as it was or as it is, never with half of an edit.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from automations import due, gaps, rounds
from automations.batch import Batch, milliseconds
from automations.due import Due
from automations.jobs import snapshot
from automations.queue_slots import queue
from automations.rounds import Fired, NothingFires, Round, hints_of
from automations.slot_turn import placed, turn_of
from automations.slots import run_id
from sessions_app import events

__all__ = ["BATCH", "Fired", "NothingFires", "fire_due"]

BATCH = 100  # jobs of one transaction


def fire_due(limit: int = BATCH) -> Fired:
    """Claim due jobs and queue their turns. NothingFires when none of them can be fired."""
    return rounds.fire(
        Round(
            name="jobs",
            batch=lambda: _fire(limit, None),
            due=lambda: due.peek(limit),
            one=lambda job_id: _fire(1, job_id),
            set_aside=gaps.set_aside,
        )
    )


def _fire(limit: int, only: str | None) -> Fired:
    with transaction.atomic():
        rows = placed(due.claim(limit, only))
        if not rows:
            return Fired()
        batch = Batch(run_of=_run_of)
        batch.take(rows)
        batch.write()
        queued = queue(batch.runs)
    for turn in queued:
        events.announce(turn.session_id)
    return Fired(claimed=len(rows), queued=len(queued), hints=hints_of(queued))


def _run_of(row: Due, slot: datetime, late: timedelta) -> dict[str, Any]:
    """One run and its turn, as the insert wants them."""
    kept, identity, turn = snapshot(row.job), run_id(row.job.pk, slot), turn_of(row, slot)
    return {
        "session_key": row.session_key,
        **turn,
        "run_id": identity,
        "job_id": row.job.pk,
        "scheduled_for": slot.isoformat(),
        "snapshot": kept,
        "lag_ms": milliseconds(late),
        "metadata": {**turn["metadata"], "policy": kept["policy"]},
        "idempotency_key": f"run:{identity}:1",
    }
