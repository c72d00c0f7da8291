"""A batch: what becomes of claimed clocks, decided row by row before anything is written.

Lock order: the clocks are locked; what is inserted comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import structlog

from automations import due, gaps, retries
from automations.due import Due, Moved
from automations.plan import Plan, accounted_to, jitter_of, plan_of
from automations.slot_turn import why_not
from automations.slots import Decision, Gap, GapReason, decide, nothing_due, skip_due
from sessions_app.models import SessionState

log = structlog.get_logger(__name__)

Run = TypeVar("Run")


@dataclass(kw_only=True)
class Batch(Generic[Run]):
    """What is about to be written. `run_of` makes the run of a row's slot; `late` is behind its firing."""

    run_of: Callable[[Due, datetime, timedelta], Run]
    runs: list[Run] = field(default_factory=list)
    gaps: list[tuple[Due, Gap]] = field(default_factory=list)
    clocks: list[Moved] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    faults: list[tuple[Due, str]] = field(default_factory=list)

    def take(self, rows: Iterable[Due]) -> None:
        """Decide about each row. Whatever a row makes go wrong stays with it: the job is set aside."""
        for row in rows:
            try:
                self._take(row)
            except Exception as error:  # noqa: BLE001 - a row can be poisoned in any way
                log.warning("job_set_aside", job=row.job.pk, error=str(error))
                self.faults.append((row, str(error)))
                slot = row.next_run_at - jitter_of(row.job)
                self.clocks.append(Moved(job_id=row.job.pk, next_run_at=None, last_slot=slot))

    def _take(self, row: Due) -> None:
        plan = plan_of(row.job, row.runs_started)
        decision = _decision(row, plan)
        runs = [self.run_of(row, slot, row.now - plan.jitter - slot) for slot in decision.run]
        following = plan.firing_of(decision.next_run_at, runs=len(runs))
        self.runs += runs
        self.gaps += [(row, gap) for gap in decision.skipped]
        self.clocks.append(
            Moved(
                job_id=row.job.pk,
                next_run_at=following,
                last_slot=decision.accounted_to,
                runs=len(runs),
            )
        )
        if runs and row.retrying:
            self.superseded.append(row.job.pk)

    def write(self) -> None:
        """Write all but the runs, which come after: what is skipped lies before them, and what waited gave way."""
        gaps.record_gaps(self.gaps)
        gaps.record_faults(self.faults)
        retries.supersede(self.superseded)
        due.advance(self.clocks)


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


def milliseconds(late: timedelta) -> int:
    """A run's lag."""
    return max(0, round(late.total_seconds() * 1000))
