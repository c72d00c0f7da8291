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

from automations import due, gaps, retries
from automations.due import Due, Moved
from automations.jobs import snapshot
from automations.plan import Plan, accounted_to, jitter_of, plan_of
from automations.queue_slots import queue
from automations.slot_turn import placed, turn_of, why_not
from automations.slots import Decision, GapReason, decide, nothing_due, run_id, skip_due
from sessions_app import events
from sessions_app.models import Lane, SessionState
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


@dataclass(kw_only=True)
class _Batch:
    """What a batch is about to write, collected before the first insert."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[tuple[Due, Any]] = field(default_factory=list)
    clocks: list[Moved] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    faults: list[tuple[Due, str]] = field(default_factory=list)


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
        batch = _Batch()
        for row in rows:
            _decide(row, batch)
        gaps.record_gaps(batch.gaps)
        queued = queue(batch.runs)
        retries.supersede(batch.superseded)
        gaps.record_faults(batch.faults)
        due.advance(batch.clocks)
    for turn in queued:
        events.announce(turn.session_id)
    return Fired(claimed=len(rows), queued=len(queued), hints=_hints(queued))


def _decide(row: Due, batch: _Batch) -> None:
    """What becomes of one due job. Whatever its row makes go wrong stays with it."""
    try:
        plan = plan_of(row.job, row.runs_started)
        decision = _decision(row, plan)
        runs = [_run(row, each, late=row.now - plan.jitter - each) for each in decision.run]
        following = plan.firing_of(decision.next_run_at, runs=len(runs))
    except Exception as error:  # noqa: BLE001 - a row can be poisoned in any way
        log.warning("job_set_aside", job=row.job.pk, error=str(error))
        batch.faults.append((row, str(error)))
        slot = row.next_run_at - jitter_of(row.job)
        batch.clocks.append(Moved(job_id=row.job.pk, next_run_at=None, last_slot=slot))
        return
    batch.runs += runs
    batch.gaps += [(row, gap) for gap in decision.skipped]
    batch.clocks.append(
        Moved(
            job_id=row.job.pk,
            next_run_at=following,
            last_slot=decision.accounted_to,
            runs=len(runs),
        )
    )
    if runs and row.retrying:
        batch.superseded.append(row.job.pk)


def _decision(row: Due, plan: Plan) -> Decision:
    now = row.now - plan.jitter
    slot = plan.first_slot(row.next_run_at, accounted_to(row.last_slot, row.now))
    if slot is None or slot > now:
        return nothing_due(slot)
    if row.session_state != SessionState.OPEN:
        # a delete may still fail and open it again: the job stays sound
        return skip_due(plan.slots, slot, now, GapReason.SESSION_CLOSED)
    reason = why_not(row)
    if reason is not None:
        return skip_due(plan.slots, slot, now, reason)
    return decide(
        schedule=plan.slots,
        next_run_at=slot,
        now=now,
        catch_up=row.job.catch_up,
        overlap=row.job.overlap,
        previous_open=row.open > 0,
        waiting=row.waiting,
        catch_up_queues=True,  # else the first slot that is caught up would skip all that follow
    )


def _run(row: Due, slot: datetime, *, late: timedelta) -> dict[str, Any]:
    """One run and its turn, as the insert wants them. `late`: behind the slot's firing, jitter is none of it."""
    kept, identity, turn = snapshot(row.job), run_id(row.job.pk, slot), turn_of(row, slot)
    return {
        "session_key": row.session_key,
        **turn,
        "run_id": identity,
        "job_id": row.job.pk,
        "scheduled_for": slot.isoformat(),
        "snapshot": kept,
        "lag_ms": max(0, round(late.total_seconds() * 1000)),
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
