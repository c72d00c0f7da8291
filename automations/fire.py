"""Fire: due slots become runs and turns, in one transaction per batch, with any number of beats.

Lock order: clock, then what is inserted. Edits and deletes take the clock first, too, so a slot is fired either
with the job as it was or as it is, never with half of an edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction

from automations import due, gaps
from automations.batch import Batch, milliseconds
from automations.due import Due
from automations.jobs import snapshot
from automations.queue_slots import queue
from automations.slot_turn import placed, turn_of
from automations.slots import run_id
from sessions_app import events
from sessions_app.models import Lane
from sessions_app.wake import Hint, send

log = structlog.get_logger(__name__)

BATCH = 100  # jobs of one transaction
HINTS_PER_AGENT = 20  # of one batch; the sweep and the runs themselves wake the rest


@dataclass(kw_only=True)
class Fired:
    """What one call did: how many due jobs it took, how many turns it queued, the sessions to hint at."""

    claimed: int = 0
    queued: int = 0
    hints: list[Hint] = field(default_factory=list)


class NothingFires(Exception):
    """No due job could be fired: the fault is not the jobs'. Nothing was changed."""


def fire_due(limit: int = BATCH) -> Fired:
    """Claim due jobs and queue their turns; hints leave after the commit.

    A batch that fails as a whole is done again row by row, and a row that fails by itself is set aside.
    """
    fired = Fired()
    try:
        fired = _fire(limit, None)
    except (OperationalError, InterfaceError):
        raise  # the database is away: nothing was written, the next tick tries again
    except Exception:
        log.exception("batch_failed")
        _one_by_one(limit, fired)
    finally:
        send(fired.hints)
    return fired


def _one_by_one(limit: int, total: Fired) -> None:
    """Row by row, counted in `total`. Only where another row went through is a failure the row's own.

    Else it is everybody's: a table that lacks a column, say, would set aside every job of the server.
    """
    failed: dict[str, Exception] = {}
    for job_id in due.peek(limit):
        try:
            fired = _fire(1, job_id)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.exception("job_failed_to_fire", job=job_id)
            failed[job_id] = error
            continue
        total.claimed += fired.claimed
        total.queued += fired.queued
        total.hints += fired.hints
    if failed and not total.claimed:
        log.error("nothing_fires", jobs=len(failed))
        raise NothingFires(f"{len(failed)} due jobs, and none could be fired") from next(
            iter(failed.values())
        )
    for job_id, cause in failed.items():
        gaps.set_aside(job_id, f"{type(cause).__name__}: {cause}")
        total.claimed += 1


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
    return Fired(claimed=len(rows), queued=len(queued), hints=_hints(queued))


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


def _hints(queued: Sequence[Any]) -> list[Hint]:
    per_agent: Counter[int] = Counter()
    hints: dict[Hint, None] = {}
    for turn in queued:
        per_agent[turn.agent_id] += 1
        if per_agent[turn.agent_id] <= HINTS_PER_AGENT:
            hints[Hint(session_id=turn.session_id, lane=Lane.AUTO)] = None
    return list(hints)
