"""Record a turn's outcome in its run, decide about another attempt (rule 4.7), and cancel queued runs.

Each function is part of the transaction that changes the turn, so the two always agree. A turn changes its run only
while the run is at the turn's attempt.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F
from django.db.models.functions import Cast, Extract, Now

from agent_core.exceptions import FINAL_CODES
from agent_core.text.formats import utc_text
from agent_core.types import Ending, TurnResult
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.models.run import CANCELLED_BY_ERROR, PINGS_KEY, TASKS_KEY, RunTransitions
from automations.runs import report
from sessions_app import metrics
from sessions_app.deliveries.system_events import EventName, fail_address, report_event, store_ping
from sessions_app.mailbox.deposit import NewUpdate
from sessions_app.models import Priority, Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES, RUNS_KEY
from sessions_app.queue.cancel import cancel_waiting
from sessions_app.sessions.archive import archive

# reasons that are reported; a person who paused, changed or deleted a routine knows already
REPORTED = {
    "superseded": "its next slot was due",
    "session_closed": "its session was closed",
    "retry_error": "its next attempt could not be queued",
    "owner_inactive": "the account was inactive when its next attempt was due",
}

RETRY_AFTER = (timedelta(minutes=5), timedelta(minutes=15), timedelta(minutes=30))  # the last one repeats
RUN_STATES = {
    Ending.SUCCEEDED: RunState.SUCCEEDED,
    Ending.FAILED: RunState.FAILED,
    Ending.CANCELLED: RunState.CANCELLED,
}

# by the database's clock, as `started_at`; null for a run that never started
_ELAPSED = ExpressionWrapper(Now() - F("started_at"), DurationField())
_MILLISECONDS = Cast(Extract(_ELAPSED, "epoch") * 1000, BigIntegerField())


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An attempt that ended with its turn; `is_final`: no retry follows."""

    pk: str
    job: CronJob
    is_final: bool


def _run_outcome(result: TurnResult, closure: str) -> dict[str, Any]:
    """The parameters of the statements that end a run."""
    return {
        "run_state": RUN_STATES[result.ending],
        "run_summary": first_line(closure),
        "run_usage": json.dumps(result.usage.to_json()),
        **{f"run_{name}": value for name, value in _error_columns(result).items()},
    }


def _error_columns(result: TurnResult) -> dict[str, Any]:
    return {
        "reason": result.error_code or "",
        "error": (result.error_text or "")[:300],
        "provider_message": result.provider_message[:300],
        "error_detail": (result.error_detail or "").replace("\x00", ""),
    }


def record_outcome(turn: Turn, result: TurnResult, closure: str) -> None:
    """Store the attempt's outcome: the run ends, or is queued again while attempts are left."""
    delay, attempt = None, RunRecord.objects.of_attempt(turn)
    if may_be_retried(result):
        active = attempt.filter(state=RunState.RUNNING, job__enabled=True)
        delay = _retry_delay(active.exclude(job__clock__paused_until__gt=Now()).first())
    if delay is None:
        _end(turn, result, closure)
    else:
        _retry(attempt, delay, result, closure)


def record_shared_outcome(turn: Turn, result: TurnResult, closure: str) -> list[Ended]:
    """Store the outcome for each run that shares the turn, in the order of their slots.

    Returns those of routines if the turn failed.
    """
    in_order = RunRecord.objects.of_attempt(turn).open().order_by("scheduled_for", "pk")
    if result.ending is not Ending.FAILED:
        if not turn.origin_run:  # several rows: locked in their order, against deadlocks
            list(in_order.select_for_update().values_list("pk"))
        _end(turn, result, closure)
        return []
    ended = []
    for run in in_order.select_related("job"):
        delay = _retry_delay(run) if run.of_job.enabled and may_be_retried(result) else None
        if delay is None:
            _end(turn, result, closure, only=run.pk)
        else:
            _retry(RunRecord.objects.filter(pk=run.pk), delay, result, closure)
        if run.of_job.system_event == "":
            ended.append(Ended(pk=run.pk, job=run.of_job, is_final=delay is None))
    return ended


def _end(turn: Turn, result: TurnResult, closure: str, *, only: str | None = None) -> None:
    from automations.runs.statements import END  # late: SQLAlchemy is slow to load

    if ended := END.run(turn_id=turn.pk, only=only, **_run_outcome(result, closure)):
        metrics.count_run(result.ending, result.error_code, ended)
        if result.ending is Ending.FAILED:
            _report_failed(turn, only)
        if PINGS_KEY in turn.metadata and result.ending in (Ending.SUCCEEDED, Ending.FAILED):
            _ping(turn, failed=result.ending is Ending.FAILED)


def _ping(turn: Turn, *, failed: bool) -> None:
    """Store the ping of a run for a dead man's switch. A cancelled run has none: it neither went well nor badly."""
    url = CronJob.objects.filter(runs=turn.origin_run).values_list("ping_url", flat=True).first()
    if url:
        store_ping(turn.session_id, fail_address(url) if failed else url, run_id=turn.origin_run)


def _report_failed(turn: Turn, only: str | None) -> None:
    """Report the runs that this turn ended as failed to the owner's program, if there is one."""
    runs = RunRecord.objects.of_attempt(turn).filter(state=RunState.FAILED)
    for run in runs.filter(pk=only) if only else runs:
        _tell_program(run, turn.session_id, run.reason, run.attempt)


def _tell_program(run: RunRecord, session_id: uuid.UUID, reason: str, attempts: int) -> None:
    data = {
        "run": run.pk,
        "automation": run.job_id,
        "automation_name": run.snapshot.get("name", ""),
        "scheduled_for": utc_text(run.scheduled_for),
        "attempts": attempts,
        "reason": reason,
        "error": run.error,
    }
    report_event(session_id, EventName.RUN_FAILED, data, of=run.pk)


def _retry(attempt: RunTransitions, delay: timedelta, result: TurnResult, closure: str) -> None:
    more = {"response_summary": first_line(closure), "usage": result.usage.to_json()}
    if attempt.retry(delay, _error_columns(result) | more | {"duration_ms": _MILLISECONDS}):
        metrics.count_failed_attempt(result.error_code)


def may_be_retried(result: TurnResult) -> bool:
    """Whether another attempt may follow, if the job still has one."""
    return result.ending is Ending.FAILED and result.error_code not in FINAL_CODES


def _retry_delay(run: RunRecord | None) -> timedelta | None:
    """The delay of the next attempt; None: there is none. `run`: None when its job is paused."""
    if run is None or run.attempt > run.snapshot.get("max_retry", 0):
        return None
    return RETRY_AFTER[min(run.attempt, len(RETRY_AFTER)) - 1]


def first_line(text: str) -> str:
    """The first line of a reply, at most 200 characters."""
    return next(iter(text.strip().splitlines()), "")[:200]


def has_own_session(run: RunRecord) -> bool:
    """Whether the run has a session of its own, as each slot of an isolated routine has."""
    return run.session_key.startswith("job:")


def end_run(run: RunRecord, reason: str, detail: str = "") -> bool:
    """Cancel a queued run, in the caller's transaction; the clock is locked. False: it is not queued any more."""
    # the session first, as everywhere: a commit that gives the run another turn locks it, too
    if run.session_id is not None:
        Session.objects.select_for_update(no_key=True).filter(pk=run.session_id).first()
    waits = RunRecord.objects.filter(pk=run.pk, state=RunState.QUEUED)
    if not waits.exists():
        return False
    if has_own_session(run) and run.session_id is not None:
        archive(run.session_id)
    done = bool(waits.cancel_queued(reason, **({"error_detail": detail[:2000]} if detail else {})))
    if done and reason in CANCELLED_BY_ERROR and run.session_id is not None:
        _tell_program(run, run.session_id, reason, _tried(run))
    if done and reason in REPORTED and run.of_job.execution_mode != ExecutionMode.SESSION:
        _report_cancelled(run.of_job, run, reason)
    return done


def _tried(run: RunRecord) -> int:
    """The attempts of a run that waited for another one, whose number it has already."""
    return max(1, run.attempt - 1)


def _report_cancelled(job: CronJob, run: RunRecord, reason: str) -> None:
    tried = _tried(run)
    times = "once" if tried == 1 else f"{tried} times"
    failure = run.response_summary or "The run failed."
    text = f"{job.name}: {failure} It was tried {times}; {REPORTED[reason]}."
    mail = NewUpdate(
        event_id=uuid.uuid5(report.NAMESPACE, f"{run.pk}:{reason}"),
        event_type="job_failed" if has_own_session(run) else "routine_failed",
        summary=report.first_sentence(text),
        detail=text,
        source_key=run.session_key,
        priority=Priority.HIGH,
        dedupe_key=report.failure_dedupe_key(job.pk),
    )
    report.report_to_home(job.home_id, job.agent_id, mail)


def cancel_queued_runs(job: CronJob, reason: str) -> int:
    """Cancel the job's queued runs; running ones go on. Returns how many of them had never begun."""
    fresh = 0
    for run in RunRecord.objects.filter(job=job, state=RunState.QUEUED).select_related("job"):
        if run.not_before is not None:  # its turn has ended already
            end_run(run, reason)
        elif _leave_shared_turn(run, reason) or (
            run.turn_id is not None and not _is_shared(run) and cancel_waiting(run.turn_id, reason)
        ):
            fresh += run.attempt == 1
        elif not (run.turn_id and Turn.objects.filter(pk=run.turn_id, state__in=OPEN_STATES).exists()):
            end_run(run, reason)  # the turn was deleted, or has ended without its run
    return fresh


def _is_shared(run: RunRecord) -> bool:
    """Whether other runs wait in the same heartbeat turn."""
    others = RunRecord.objects.open().filter(turn=run.turn_id, not_before=None)
    return run.turn_id is not None and others.exclude(pk=run.pk).exists()


def _leave_shared_turn(run: RunRecord, reason: str) -> bool:
    """Cancel only this run, and remove its task from the queued turn that it shares. False: it shares none."""
    if run.turn_id is None or run.session_id is None or not _is_shared(run):
        return False
    # the session, then the turn: a worker that claims the turn reads its tasks after this lock
    Session.objects.select_for_update(no_key=True).filter(pk=run.session_id).first()
    turn = Turn.objects.select_for_update(no_key=True).filter(pk=run.turn_id, state=TurnState.QUEUED).first()
    if turn is None:
        return False
    tasks = [task for task in turn.metadata[TASKS_KEY] if task["run"] != run.pk]
    left = {TASKS_KEY: tasks, RUNS_KEY: [task["run"] for task in tasks]}
    Turn.objects.rewrite(turn.pk, due_line(tasks), turn.metadata | left)
    return end_run(run, reason)


def due_line(tasks: Iterable[dict[str, Any]]) -> str:
    """The text of a queued turn with these tasks."""
    return ("Due: " + ", ".join(task["title"] for task in tasks))[:2000]
