"""Whether a failed attempt of a run is followed by another one, and when (rules 4.7, 11.2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent_core.exceptions import FINAL_CODES, PASSING_CODES, CapReached
from agent_core.types import Ending, StepKind, TurnResult
from automations.models import RunRecord
from automations.models.health import health_of
from sessions_app.models import Turn, TurnKind, TurnStep

RETRY_AFTER = (timedelta(minutes=5), timedelta(minutes=15), timedelta(minutes=30))  # the last one repeats
REPEAT_AFTER = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))  # if nothing was done
_BEFORE_ANY_ANSWER = PASSING_CODES | {"timeout", CapReached.HELD}
_DONE = (StepKind.RESPONSE, StepKind.INTENT, StepKind.RESULT)


def did_nothing(turn: Turn, result: TurnResult) -> bool:
    """Whether the attempt ended before any answer of a model and any tool call, so that nothing is done twice."""
    if result.error_code not in _BEFORE_ANY_ANSWER or turn.input.next_turn:
        return False
    if turn.kind == TurnKind.HEARTBEAT and not turn.input.tasks:  # it has a backoff of its own
        return False
    if result.entries or result.usage.requests:
        return False
    return not TurnStep.objects.filter(turn=turn, kind__in=[str(kind) for kind in _DONE]).exists()


def wait_for_next(run: RunRecord, result: TurnResult, *, repeats: bool) -> timedelta | None:
    """The wait before the attempt after this failed one; None: there is none, or the job is paused or slowed down.

    `repeats`: this one had done nothing, so it does not count against `max_retry`.
    """
    job = run.job
    if job is None or not job.enabled or health_of(job).is_slowed:
        return None
    pause = job.clock.paused_until
    if pause is not None and pause > datetime.now(UTC):
        return None
    if repeats:
        return REPEAT_AFTER[run.fruitless]
    counted = run.attempt - run.fruitless
    if not may_be_retried(result) or counted > run.snapshot.get("max_retry", 0):
        return None
    return RETRY_AFTER[min(counted, len(RETRY_AFTER)) - 1]


def may_be_retried(result: TurnResult) -> bool:
    """Whether another attempt may follow, if the job still has one."""
    return result.ending is Ending.FAILED and result.error_code not in {*FINAL_CODES, CapReached.code}
