"""A batch of claimed jobs. Every job is decided about before anything is written.

Jobs with equal facts share one decision, since it is a pure function of them. Lock order: the clocks are locked
already, then the inserted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import structlog

from automations.firing import retries
from automations.firing.decide import Decision, decide, nothing_due, skip_due
from automations.firing.due_jobs import ClockMove, DueJob, Facts
from automations.firing.insert_runs import lag_ms
from automations.firing.placement import skip_reason
from automations.models import CronJob
from automations.runs.skips import Gap, GapReason, record_gap
from automations.schedules.plan import JobPlan, accounted_to, jitter_of, plan_of, schedule_of
from sessions_app.models import SessionState

log = structlog.get_logger(__name__)


class Outcome(NamedTuple):
    """What firing does with equal facts. `runs`: for each slot that runs, the columns of its run that depend on them.

    `next_run_at` and `last_slot` as in `ClockMove`.
    """

    slots: tuple[datetime, ...]
    runs: tuple[dict[str, Any], ...]
    skipped: tuple[Gap, ...]
    next_run_at: str | None
    last_slot: str | None


class Batch:
    """Collects the rows to write for the claimed jobs. `now`: the transaction's time."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.clocks: list[ClockMove] = []
        self._gaps: list[tuple[DueJob, Gap]] = []
        self._superseded: list[str] = []
        self._faults: list[tuple[DueJob, datetime, str]] = []
        self._outcomes: dict[tuple[Facts, str], Outcome] = {}

    @contextmanager
    def faults_of(self, row: DueJob) -> Iterator[None]:
        """Set the job aside if anything fails for its row, so that one bad row does not stop the batch."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - bad data can raise anything
            log.warning("job_set_aside", job=row.pk, error=str(error))
            slot = row.facts.next_run_at - jitter_of(row.facts)
            self._faults.append((row, slot, str(error)))
            self.clocks.append(ClockMove(row.pk, None, slot.isoformat()))

    def outcome_of(self, row: DueJob) -> Outcome:
        """Decide about a job's due slots. Raises anything for bad data."""
        if row.job is not None:
            return _outcome(row.facts, row.session_state, partial(skip_reason, row), self.now)
        key = row.facts, row.session_state
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._outcomes[key] = _outcome(*key, _no_reason, self.now)
        return outcome

    def add(self, row: DueJob, outcome: Outcome) -> None:
        """Add the outcome for a job, apart from its runs."""
        for gap in outcome.skipped:
            self._gaps.append((row, gap))
        runs = len(outcome.runs)
        self.clocks.append(ClockMove(row.pk, outcome.next_run_at, outcome.last_slot, runs))
        if runs and row.retrying:
            self._superseded.append(row.pk)

    def write(self) -> None:
        """Write gaps (their slots come before the runs), faults and superseded retries. Runs and clocks follow."""
        rows = [row for row, _ in self._gaps] + [row for row, _, _ in self._faults]
        bound = [row.pk for row in rows if row.job is None]
        jobs: dict[str, CronJob] = CronJob.objects.select_related("session").in_bulk(bound) if bound else {}
        jobs |= {row.pk: row.job for row in rows if row.job is not None}
        for row, gap in self._gaps:
            record_gap(jobs[row.pk], gap)
        for row, slot, reason in self._faults:
            record_fault(jobs[row.pk], slot, reason)
        retries.supersede(self._superseded)


def _no_reason() -> None:
    """A bound job's slot is never skipped for a reason of its own."""


def _outcome(
    facts: Facts, session_state: str, skip: Callable[[], GapReason | None], now: datetime
) -> Outcome:
    plan = plan_of(facts, facts.runs_started)
    decision = _decision(facts, plan, session_state, skip, now)
    # the clock shows the time of firing, which includes jitter
    firing = plan.firing_of(decision.next_run_at, runs=len(decision.run))
    return Outcome(
        slots=decision.run,
        runs=tuple(
            {
                "scheduled_for": slot.isoformat(),
                "lag_ms": lag_ms(now - plan.jitter - slot),
                "schedule": schedule_of(facts).to_json(zone=facts.timezone),
            }
            for slot in decision.run
        ),
        skipped=decision.skipped,
        next_run_at=None if firing is None else firing.isoformat(),
        last_slot=None if decision.accounted_to is None else decision.accounted_to.isoformat(),
    )


def _decision(
    facts: Facts, plan: JobPlan, session_state: str, skip: Callable[[], GapReason | None], now: datetime
) -> Decision:
    slot = plan.first_slot(facts.next_run_at, accounted_to(facts.last_slot, now))
    now -= plan.jitter
    if slot is None or slot > now:
        return nothing_due(slot)
    if not facts.owner_is_active:
        return skip_due(plan.slots, slot, now, GapReason.OWNER_INACTIVE)
    if session_state != SessionState.OPEN:
        # the job stays enabled: a delete may fail and open the session again
        return skip_due(plan.slots, slot, now, GapReason.SESSION_CLOSED)
    reason = skip()
    if reason is not None:
        return skip_due(plan.slots, slot, now, reason)
    return decide(
        schedule=plan.slots,
        next_run_at=slot,
        now=now,
        catch_up=facts.catch_up,
        overlap=facts.overlap,
        previous_open=facts.open > 0,
        waiting=facts.waiting,
        catch_up_queues=True,  # otherwise the first slot caught up would make all later ones overlap
    )


def record_fault(job: CronJob, slot: datetime, reason: str) -> None:
    """Disable a job and store the reason as its fault; the slot becomes a skipped run."""
    gap = Gap(reason=GapReason.SCHEDULE_ERROR, slots_from=slot, slots_to=slot, count=1)
    record_gap(job, gap, error_detail=reason)
    CronJob.objects.set_aside([job.pk], reason)
