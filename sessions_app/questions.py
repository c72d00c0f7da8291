"""Questions that executions wait with: answered by a message of their own, or given up."""

from __future__ import annotations

from agent_core.execution import AT_WORK, WAITING
from sessions_app.cancel import cancel_turn
from sessions_app.exceptions import ExecutionEnded, NotWaiting
from sessions_app.models import Engine, ExecutionState, OnBusy, Session, Turn
from sessions_app.receive import Input, receive
from sessions_app.unified import with_behind


def answer(execution: ExecutionState, content: str, key: str | None = None) -> Turn:
    """Queue the reply to this very question; `key` makes twice once. NotWaiting, and what `receive` refuses."""
    if not _waits(execution) and not _is_answered_by(execution, key):
        raise NotWaiting
    given = Input(
        content=content,
        on_busy=OnBusy.ENQUEUE,
        metadata={"execution": execution.pk},
        idempotency_key=key,
    )
    return receive(execution.session_id, given)


def _waits(execution: ExecutionState) -> bool:
    """It waits, its agent still plans, and what is said in its session is heard there."""
    session = with_behind(Session.objects.filter(pk=execution.session_id)).select_related("agent").first()
    if session is None or session.agent.engine != Engine.PLANNER or session.behind != session.pk:
        return False
    return execution.status in WAITING


def _is_answered_by(execution: ExecutionState, key: str | None) -> bool:
    """The same request came before: it is answered alike, whatever has come of it since."""
    return (
        key is not None
        and Turn.objects.filter(
            session_id=execution.session_id, idempotency_key=key, metadata__execution=execution.pk
        ).exists()
    )


def cancel(execution: ExecutionState) -> None:
    """Give up a question; of an execution at work its turn is asked to end. ExecutionEnded."""
    if ExecutionState.objects.filter(pk=execution.pk).close("person"):
        return
    execution.refresh_from_db()
    if execution.status not in AT_WORK or execution.turn_id is None:
        raise ExecutionEnded
    cancel_turn(execution.turn_id)
