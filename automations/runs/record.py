"""Record a turn's start, prompt and outcome in its run, and decide about another attempt (rule 4.7).

Each function is part of the transaction that changes the turn, so the two always agree. A turn changes its run only
while the run is at the turn's attempt.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F
from django.db.models.functions import Cast, Extract, Now

from agent_core.exceptions import FINAL_CODES
from agent_core.types import Ending, TurnResult
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.models.run import RunTransitions
from automations.runs import report
from sessions_app.mailbox.updates import Mail
from sessions_app.models import Priority, Session, Turn
from sessions_app.sessions.archive import archive
from sessions_app.turns.kinds import Trigger

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


def record_start(turn: Turn) -> None:
    """Start the run with its turn; a resumed turn changes nothing."""
    RunRecord.objects.of_attempt(turn).start()


def record_prompt(turn: Turn, trigger: Trigger) -> None:
    """Store the prompt that the model is shown; the history does not have it."""
    template = trigger.template or {}
    RunRecord.objects.of_attempt(turn).record_prompt(
        template["prompt_ref"], template["variables"], text=trigger.model_content
    )


def record_outcome(turn: Turn, result: TurnResult, closure: str) -> None:
    """Store the attempt's outcome: the run ends, or is queued again while attempts are left."""
    delay, attempt = None, RunRecord.objects.of_attempt(turn)
    if _may_be_retried(result):
        active = attempt.filter(state=RunState.RUNNING, job__enabled=True)
        delay = _retry_delay(active.exclude(job__clock__paused_until__gt=Now()).first())
    _store_outcome(attempt, result, closure, delay)


def record_shared_outcome(turn: Turn, result: TurnResult, closure: str) -> list[Ended]:
    """Store the outcome for each run that shares the turn, in the order of their slots.

    Returns those of routines if the turn failed.
    """
    attempt = RunRecord.objects.of_attempt(turn)
    in_order = attempt.open().order_by("scheduled_for", "pk")
    if result.ending is not Ending.FAILED:
        if not turn.origin_run:  # several rows: locked in their order, against deadlocks
            attempt = RunRecord.objects.filter(pk__in=in_order.select_for_update())
        _store_outcome(attempt, result, closure, None)
        return []
    ended = []
    for run in in_order.select_related("job"):
        delay = _retry_delay(run) if run.of_job.enabled and _may_be_retried(result) else None
        _store_outcome(RunRecord.objects.filter(pk=run.pk), result, closure, delay)
        if run.of_job.system_event == "":
            ended.append(Ended(pk=run.pk, job=run.of_job, is_final=delay is None))
    return ended


def _store_outcome(
    attempt: RunTransitions, result: TurnResult, closure: str, delay: timedelta | None
) -> None:
    outcome: dict[str, Any] = {
        "reason": result.error_code or "",
        "error": (result.error_text or "")[:300],
        "error_detail": (result.error_detail or "").replace("\x00", ""),
        "response_summary": first_line(closure),
        "usage": result.usage.to_json(),
        "duration_ms": _MILLISECONDS,
    }
    if delay is None:
        attempt.finish(RUN_STATES[result.ending], outcome)
    else:
        attempt.retry(delay, outcome)


def _may_be_retried(result: TurnResult) -> bool:
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
    if done and reason in REPORTED and run.of_job.execution_mode != ExecutionMode.SESSION:
        _report_cancelled(run.of_job, run, reason)
    return done


def _report_cancelled(job: CronJob, run: RunRecord, reason: str) -> None:
    tried = max(1, run.attempt - 1)
    times = "once" if tried == 1 else f"{tried} times"
    failure = run.response_summary or "The run failed."
    text = f"{job.name}: {failure} It was tried {times}; {REPORTED[reason]}."
    mail = Mail(
        event_id=uuid.uuid5(report.NAMESPACE, f"{run.pk}:{reason}"),
        event_type="job_failed" if has_own_session(run) else "routine_failed",
        summary=report.first_sentence(text),
        detail=text,
        source_key=run.session_key,
        priority=Priority.HIGH,
        dedupe_key=report.failure_dedupe_key(job.pk),
    )
    report.report_to_home(job.home_id, job.agent_id, mail)
