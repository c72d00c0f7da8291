"""A batch of claimed jobs. Every job is decided about before anything is written.

Jobs with equal facts share one decision, since it is a pure function of them. Lock order: the clocks are locked
already, then the inserted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import structlog

from automations.firing import retries
from automations.firing.decide import Decision, decide, nothing_due, skip_due
from automations.firing.due_jobs import DueJob, Facts
from automations.firing.insert_runs import lag_ms
from automations.firing.next_work import FAR
from automations.firing.placement import skip_reason
from automations.models import CronJob, ExecutionMode
from automations.models.category import Category, category
from automations.runs.report import report_paused
from automations.runs.skips import Gap, GapReason, record_gap, run_id
from automations.schedules.errors import ScheduleError
from automations.schedules.plan import JobPlan, accounted_to, jitter_of, plan_of
from sessions_app.failures import log_failure
from sessions_app.models import SessionState

log = structlog.get_logger(__name__)


class Outcome(NamedTuple):
    """What firing does with equal facts. `clock`: a row for `advance_clocks`, without its job.

    `runs`: for each slot that runs, the columns of its row for `insert_runs` that depend on the facts.
    """

    slots: tuple[datetime, ...]
    runs: tuple[dict[str, Any], ...]
    skipped: tuple[Gap, ...]
    clock: dict[str, Any]


class Batch:
    """The rows to write for claimed jobs. `now`: the transaction's time."""

    def __init__(self, now: datetime) -> None:
        self.runs: list[dict[str, Any]] = []
        self.clocks: list[dict[str, Any]] = []
        self._now = now
        self._gaps: list[tuple[DueJob, Gap]] = []
        self._superseded: list[str] = []
        self._faults: list[tuple[DueJob, datetime, str]] = []
        self._outcomes: dict[tuple[Facts, str], Outcome] = {}

    def decide(self, rows: Iterable[DueJob], more: Callable[[DueJob, datetime], dict[str, Any]]) -> None:
        """Decide about the due slots of these jobs. `more`: further columns of the run of a slot.

        If anything fails for a job, it is set aside, so that one bad row does not stop the batch.
        """
        for row in rows:
            try:
                outcome = self._outcome_of(row)
                runs = [
                    {**run, **more(row, slot), "job_id": row.pk, "run_id": run_id(row.pk, slot)}
                    for slot, run in zip(outcome.slots, outcome.runs, strict=True)
                ]
            except Exception as error:  # noqa: BLE001 - bad data can raise anything
                log_failure(log, "job_set_aside", error, (ScheduleError,), job=row.pk, reason=str(error))
                slot = row.facts.next_run_at - jitter_of(row.facts)
                self._faults.append((row, slot, str(error)))
                self.clocks.append(_clock(None, slot) | {"job_id": row.pk})
                continue
            self.runs += runs
            self.clocks.append({**outcome.clock, "job_id": row.pk})
            self._gaps += [(row, gap) for gap in outcome.skipped]
            if runs and row.retrying:
                self._superseded.append(row.pk)

    def _outcome_of(self, row: DueJob) -> Outcome:
        if category(row) is not Category.BOUND:
            facts = row.facts
            if row.execution_mode == ExecutionMode.ISOLATED:  # a run that waits for a worker is no overlap
                facts = facts._replace(open=facts.open - facts.waiting)
            return _outcome(facts, row.session_state, partial(skip_reason, row), self._now)
        key = row.facts, row.session_state
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._outcomes[key] = _outcome(*key, _no_reason, self._now)
        return outcome

    def wait(self) -> float:
        """Seconds until one of these jobs is due again."""
        times = {clock["next_run_at"] for clock in self.clocks} - {None}
        waits = ((datetime.fromisoformat(each) - self._now).total_seconds() for each in times)
        return min(waits, default=FAR)

    def write(self) -> None:
        """Write gaps (their slots come before the runs), faults and superseded retries. Runs and clocks follow."""
        ids = {row.pk for row, *_ in self._gaps} | {row.pk for row, *_ in self._faults}
        jobs: dict[str, CronJob] = {}
        if ids:
            jobs = CronJob.objects.select_related("session", "agent").in_bulk(ids)
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
                "schedule": plan.schedule.to_json(zone=facts.timezone),
            }
            for slot in decision.run
        ),
        skipped=decision.skipped,
        clock=_clock(firing, decision.accounted_to, len(decision.run)),
    )


def _clock(next_run_at: datetime | None, last_slot: datetime | None, runs: int = 0) -> dict[str, Any]:
    return {
        "next_run_at": None if next_run_at is None else next_run_at.isoformat(),
        "last_slot": None if last_slot is None else last_slot.isoformat(),
        "runs": runs,
    }


def _decision(
    facts: Facts, plan: JobPlan, session_state: str, skip: Callable[[], GapReason | None], now: datetime
) -> Decision:
    slot = plan.first_slot(facts.next_run_at, accounted_to(facts.last_slot, now))
    now -= plan.jitter
    if slot is None or slot > now:
        return nothing_due(slot)
    if not facts.owner_is_active:
        return skip_due(plan.slots, slot, now, GapReason.OWNER_INACTIVE)
    if facts.owner_is_full:
        return skip_due(plan.slots, slot, now, GapReason.STORAGE_FULL)
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
    """Disable a job, store the reason as its fault and tell its owner; the slot becomes a skipped run."""
    gap = Gap(reason=GapReason.SCHEDULE_ERROR, slots_from=slot, slots_to=slot, count=1)
    record_gap(job, gap, error_detail=reason)
    CronJob.objects.set_aside([job.pk], reason)
    report_paused(job)
