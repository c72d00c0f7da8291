"""A batch of claimed jobs. Every job is decided about before anything is written.

Lock order: the clocks are locked already, then the inserted rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

import structlog

from automations.firing import due_jobs, retries
from automations.firing.decide import Decision, decide, nothing_due, skip_due
from automations.firing.due_jobs import ClockMove, DueJob
from automations.firing.placement import skip_reason
from automations.models import CronJob
from automations.runs.skips import Gap, GapReason, record_gap
from automations.schedules.plan import JobPlan, accounted_to, jitter_of, plan_of
from sessions_app.models import SessionState

log = structlog.get_logger(__name__)

Run = TypeVar("Run")


@dataclass(kw_only=True)
class Batch(Generic[Run]):
    """Rows to write for the claimed jobs."""

    runs: list[Run] = field(default_factory=list)
    gaps: list[tuple[DueJob, Gap]] = field(default_factory=list)
    clocks: list[ClockMove] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    faults: list[tuple[DueJob, datetime, str]] = field(default_factory=list)

    @contextmanager
    def faults_of(self, row: DueJob) -> Iterator[None]:
        """Set the job aside if anything fails for its row, so that one bad row does not stop the batch."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - bad data can raise anything
            log.warning("job_set_aside", job=row.job.pk, error=str(error))
            slot = row.next_run_at - jitter_of(row.job)
            self.faults.append((row, slot, str(error)))
            self.clocks.append(ClockMove(job_id=row.job.pk, next_run_at=None, last_slot=slot))

    def add(self, row: DueJob, decision: Decision, runs: list[Run]) -> None:
        """Add the decision about a job, with the runs of its slots."""
        self.runs += runs
        self.gaps += [(row, gap) for gap in decision.skipped]
        self.clocks.append(
            ClockMove(
                job_id=row.job.pk,
                next_run_at=decision.next_run_at,
                last_slot=decision.accounted_to,
                runs=len(runs),
            )
        )
        if runs and row.retrying:
            self.superseded.append(row.job.pk)

    def write(self) -> None:
        """Write everything but the runs: gaps (their slots come before), faults, superseded retries, clocks."""
        for row, gap in self.gaps:
            record_gap(row.job, gap)
        for row, slot, reason in self.faults:
            record_fault(row.job, slot, reason)
        retries.supersede(self.superseded)
        due_jobs.advance_clocks(self.clocks)


def decide_job(row: DueJob) -> Decision:
    """Decide about a job's due slots. The decision's `next_run_at` is the time of firing, so it includes jitter."""
    plan = plan_of(row.job, row.runs_started)
    decision = _decision(row, plan)
    return replace(decision, next_run_at=plan.firing_of(decision.next_run_at, runs=len(decision.run)))


def _decision(row: DueJob, plan: JobPlan) -> Decision:
    now = row.now - plan.jitter
    slot = plan.first_slot(row.next_run_at, accounted_to(row.last_slot, row.now))
    if slot is None or slot > now:
        return nothing_due(slot)
    if not row.owner_is_active:
        return skip_due(plan.slots, slot, now, GapReason.OWNER_INACTIVE)
    if row.session_state != SessionState.OPEN:
        # the job stays enabled: a delete may fail and open the session again
        return skip_due(plan.slots, slot, now, GapReason.SESSION_CLOSED)
    reason = skip_reason(row)
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
        catch_up_queues=True,  # otherwise the first slot caught up would make all later ones overlap
    )


def record_fault(job: CronJob, slot: datetime, reason: str) -> None:
    """Disable a job and store the reason as its fault; the slot becomes a skipped run."""
    gap = Gap(reason=GapReason.SCHEDULE_ERROR, slots_from=slot, slots_to=slot, count=1)
    record_gap(job, gap, error_detail=reason)
    CronJob.objects.set_aside([job.pk], reason)
