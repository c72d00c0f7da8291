"""Answer or cancel a waiting question. An answer is a message of its own; a question takes one at a time."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace

from django.db import IntegrityError, transaction

from agent_core.execution import AT_WORK, WAITING
from sessions_app.exceptions import ExecutionEnded, NotFound, NotWaiting, QuestionTaken
from sessions_app.mailbox.updates import drop_settled
from sessions_app.models import (
    ConsentQuestion,
    ConsentState,
    Engine,
    ExecutionState,
    OnBusy,
    Session,
    Turn,
    TurnInput,
)
from sessions_app.models.questions import ConsentTransitions, ExecutionTransitions
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.questions.unattended import is_late, update_about
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.queue.threads import target_ids

Rows = ExecutionTransitions | ConsentTransitions  # the row of one question


def answer_question(
    execution: ExecutionState,
    content: str,
    key: str | None = None,
    question: str = "",
    *,
    limited: bool = False,
) -> Turn:
    """Queue the answer to the question of an execution. `key` is its idempotency key.

    `question`: the id of the question that was read. `limited`: as in `TurnInput`. NotWaiting; QuestionTaken while
    another answer to it is queued or being processed; and what `receive` raises.
    """
    rows = ExecutionState.objects.filter(pk=execution.pk)
    return _queue(rows, content, key, question, limited=limited)


def answer_consent(
    question: ConsentQuestion, content: str, key: str | None = None, *, limited: bool = False
) -> Turn:
    """Queue the answer to a question for consent, of a plan or of a chat. It raises what `answer_question` raises."""
    if question.execution:
        execution = ExecutionState.objects.filter(pk=question.execution).first()
        if execution is None:
            raise NotWaiting
        return answer_question(execution, content, key, question.pk, limited=limited)
    return _queue(ConsentQuestion.objects.filter(pk=question.pk), content, key, "", limited=limited)


def _queue(rows: Rows, content: str, key: str | None, question: str, *, limited: bool) -> Turn:
    try:
        return retry_deadlocks(lambda: _answer(rows.all(), content, key, question, limited=limited))
    except IntegrityError as error:  # the session was deleted meanwhile
        raise NotFound("there is no such session") from error


@transaction.atomic
def _answer(rows: Rows, content: str, key: str | None, question: str, *, limited: bool) -> Turn:
    # locked, so that the second of two concurrent answers sees the first
    row = rows.select_for_update(no_key=True).first()
    if row is None:
        raise NotWaiting
    if isinstance(row, ExecutionState):
        request = TurnInput(execution=row.pk)
        about = replace(request, question=row.question_id, named=bool(question))
        waits = row.status in WAITING and question in ("", row.question_id)
        engines, answered_by = {Engine.PLANNER}, row.turn_id
    else:
        about = request = TurnInput(question=row.pk)
        waits = row.state == ConsentState.OPEN and not is_late(row)
        engines, answered_by = {Engine.CHAT} if row.expires_at is None else set(Engine), row.answered_by_id
    about = replace(about, limited=limited)
    given = MessageInput(content=content, on_busy=OnBusy.ENQUEUE, about=about, idempotency_key=key)
    if _came_before(row.session_id, key, request):
        return receive(row.session_id, given)  # a repeated request; it takes the question from nobody
    if not waits or not _is_heard(row.session_id, engines):
        why = row.why_closed if isinstance(row, ConsentQuestion) else ""
        raise NotWaiting(f"The question is closed: {why}." if why else "")
    if answered_by is not None and Turn.objects.filter(pk=answered_by, state__in=OPEN_STATES).exists():
        raise QuestionTaken
    turn = receive(row.session_id, given)
    rows.reserve(row.pk, turn)
    if isinstance(row, ConsentQuestion):
        drop_settled(update_about(row.pk))  # the turn of the answer would tell it as if it waited still
    return turn


def _is_heard(session_id: uuid.UUID, engines: Collection[Engine]) -> bool:
    """Whether the agent has one of these engines, and messages in the session are still its own (not redirected)."""
    has_engine = Session.objects.filter(pk=session_id, agent__engine__in=engines).exists()
    return has_engine and target_ids([session_id]).get(session_id) == session_id


def _came_before(session_id: uuid.UUID, key: str | None, about: TurnInput) -> bool:
    """Whether the same request came before. It gets the same turn again, whatever happened since."""
    if key is None:
        return False
    same = Turn.objects.filter(session_id=session_id, idempotency_key=key, metadata__contains=about.to_json())
    return same.exists()


def cancel_question(execution: ExecutionState) -> None:
    """Cancel a waiting execution; a running one is asked to end. ExecutionEnded."""
    if ExecutionState.objects.filter(pk=execution.pk).close("person"):
        return
    execution.refresh_from_db()
    if execution.status not in AT_WORK or execution.turn_id is None:
        raise ExecutionEnded
    cancel_turn(execution.turn_id)
