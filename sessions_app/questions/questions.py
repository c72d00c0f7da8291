"""Answer or cancel a waiting question. An answer is a message of its own; a question takes one at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from agent_core.execution import AT_WORK, WAITING
from sessions_app.exceptions import ExecutionEnded, NotFound, NotWaiting, QuestionTaken
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
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.questions.unattended import is_late
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.queue.threads import target_ids

R = TypeVar("R", ExecutionState, ConsentQuestion)


def answer_question(
    execution: ExecutionState, content: str, key: str | None = None, question: str = ""
) -> Turn:
    """Queue the answer to the question of an execution. `key` is its idempotency key.

    `question`: the id of the question that was read. NotWaiting; QuestionTaken while another answer to it is queued or
    being processed; and what `receive` raises.
    """
    return _retry(lambda: _answer(execution.pk, content, key, question))


def answer_consent(question: ConsentQuestion, content: str, key: str | None = None) -> Turn:
    """Queue the answer to a question for consent, of a plan or of a chat. It raises what `answer_question` raises."""
    if question.execution:
        execution = ExecutionState.objects.filter(pk=question.execution).first()
        if execution is None:
            raise NotWaiting
        return answer_question(execution, content, key, question.pk)
    return _retry(lambda: _answer_chat(question.pk, content, key))


def _retry(queue: Callable[[], Turn]) -> Turn:
    try:
        return retry_deadlocks(queue)
    except IntegrityError as error:  # the session was deleted meanwhile
        raise NotFound("there is no such session") from error


@transaction.atomic
def _answer(execution_id: str, content: str, key: str | None, question: str) -> Turn:
    row = _locked(ExecutionState.objects.filter(pk=execution_id))
    about = TurnInput(execution=row.pk, question=row.question_id, named=bool(question))
    given = _input(content, key, about)
    if _came_before(row.session_id, key, TurnInput(execution=row.pk)):
        return receive(row.session_id, given)  # a repeated request; it takes the question from nobody
    is_other = bool(question) and question != row.question_id
    if is_other or row.status not in WAITING or not _is_heard(row.session_id, Engine.PLANNER):
        raise NotWaiting
    _must_be_free(row.turn_id)
    turn = receive(row.session_id, given)
    ExecutionState.objects.reserve(row.pk, turn)
    return turn


@transaction.atomic
def _answer_chat(question_id: str, content: str, key: str | None) -> Turn:
    row = _locked(ConsentQuestion.objects.filter(pk=question_id))
    given = _input(content, key, TurnInput(question=row.pk))
    if _came_before(row.session_id, key, TurnInput(question=row.pk)):
        return receive(row.session_id, given)
    engine = Engine.CHAT if row.expires_at is None else None
    if row.state != ConsentState.OPEN or is_late(row) or not _is_heard(row.session_id, engine):
        raise NotWaiting
    _must_be_free(row.answered_by_id)
    turn = receive(row.session_id, given)
    ConsentQuestion.objects.reserve(row.pk, turn)
    return turn


def _locked(rows: QuerySet[R]) -> R:
    """Lock the row, so that the second of two concurrent answers sees the first. NotWaiting if it is gone."""
    row = rows.select_for_update(no_key=True).first()
    if row is None:
        raise NotWaiting
    return row


def _input(content: str, key: str | None, about: TurnInput) -> MessageInput:
    return MessageInput(content=content, on_busy=OnBusy.ENQUEUE, about=about, idempotency_key=key)


def _is_heard(session_id: uuid.UUID, engine: str | None) -> bool:
    """Whether the agent still has this engine, and messages in the session are still its own (not redirected)."""
    has_engine = engine is None or Session.objects.filter(pk=session_id, agent__engine=engine).exists()
    return has_engine and target_ids([session_id]).get(session_id) == session_id


def _must_be_free(turn_id: int | None) -> None:
    """QuestionTaken while the turn that answers it has not ended."""
    if turn_id is not None and Turn.objects.filter(pk=turn_id, state__in=OPEN_STATES).exists():
        raise QuestionTaken


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
