"""Whether a failed attempt of a run is followed by another one, and when (rules 4.7, 11.2)."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class NextAttempt:
    """The wait before the next attempt. `did_nothing`: it repeats one that does not count against `max_retry`."""

    wait: timedelta
    did_nothing: bool = False


def did_nothing(turn: Turn, result: TurnResult) -> bool:
    """Whether the attempt ended before any answer of a model and any tool call, so that nothing is done twice."""
    if result.error_code not in _BEFORE_ANY_ANSWER or turn.input.next_turn:
        return False
    if turn.kind == TurnKind.HEARTBEAT and not turn.input.tasks:  # it has a backoff of its own
        return False
    if result.entries or result.usage.requests:
        return False
    return not TurnStep.objects.filter(turn=turn, kind__in=[str(kind) for kind in _DONE]).exists()


def next_attempt(run: RunRecord, result: TurnResult, *, did_nothing: bool) -> NextAttempt | None:
    """The attempt after this failed one; None: there is none, or the job is paused or slowed down."""
    job = run.job
    if job is None or not job.enabled or health_of(job).is_slowed:
        return None
    pause = job.clock.paused_until
    if pause is not None and pause > datetime.now(UTC):
        return None
    if did_nothing and run.fruitless < len(REPEAT_AFTER):
        return NextAttempt(wait=REPEAT_AFTER[run.fruitless], did_nothing=True)
    counted = run.attempt - run.fruitless
    if not may_be_retried(result) or counted > run.snapshot.get("max_retry", 0):
        return None
    return NextAttempt(wait=RETRY_AFTER[min(counted, len(RETRY_AFTER)) - 1])


def may_be_retried(result: TurnResult) -> bool:
    """Whether another attempt may follow, if the job still has one."""
    return result.ending is Ending.FAILED and result.error_code not in {*FINAL_CODES, CapReached.code}
