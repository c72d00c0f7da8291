"""Which session a thread is, and how a run becomes a turn."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from ag_ui.core import ResumeEntry
from django.contrib.auth.models import User
from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from interfaces.ag_ui.run_input import Run, Said
from sessions_app.exceptions import BadInput, HistoryDiverged, NotFound, SessionExists
from sessions_app.models import Turn
from sessions_app.questions import question_reads, questions
from sessions_app.queue.receive import MessageInput, program_message, receive
from sessions_app.reads import selectors
from sessions_app.sessions.history import some_messages
from sessions_app.sessions.images import with_note
from sessions_app.sessions.open import open_session

CLIENT_ID = "ag_ui_id"  # in a message's metadata: the id that the client gave it
COMPARED = 50  # messages of the history in which ids are looked for
CONSENT, PLAN = "consent", "plan"  # how the id of an interrupt begins


class Consent(BaseModel):
    """The answer to a question for consent."""

    model_config = ConfigDict(extra="forbid")

    approved: StrictBool


class PlanAnswer(BaseModel):
    """The answer to a question of a plan."""

    model_config = ConfigDict(extra="forbid", str_min_length=1)

    answer: str


def session_of(user: User, agent: Any, thread_id: str) -> Any:
    """The session of a thread: that of the user's sessions with this id, or one that is opened for it.

    Another user's session is not found by its id, which then names a thread of one's own. For a token that is limited
    to a session, each thread is that session. BadInput for a session of another agent.
    """
    if (only := selectors.only_session(user)) is not None:
        return only
    with suppress(ValueError):
        named = uuid.UUID(thread_id)
        with suppress(NotFound):
            found = selectors.session(user, named)
            if found.agent_id != agent.pk:
                raise BadInput(f"the session {named} is one of another agent", code="bad_thread")
            return found
    key = f"web:ag-ui-{thread_id}"
    with suppress(NotFound):
        return selectors.session_with_key(user, agent, key)
    with suppress(SessionExists):  # a request at the same time opened it
        open_session(agent, key=key)
    return selectors.session_with_key(user, agent, key)


def start_turn(user: User, session: Any, run: Run) -> Turn | None:
    """The turn of a run; a run that is sent twice has one turn. None: there is nothing to do, and none was begun.

    It raises what `receive` and answering a question raise; HistoryDiverged.
    """
    if run.answered is not None:
        return _answer(user, session, run, run.answered)
    if run.said is None:
        return None
    _compare(user, session, run)
    return receive(session.pk, _message(run.said), user.pk)


def _message(said: Said) -> MessageInput:
    text = with_note(said.text, len(said.images))
    message = program_message(text, f"ag-ui:{said.id}", message={CLIENT_ID: said.id})
    return replace(message, images=said.images)


def _compare(user: User, session: Any, run: Run) -> None:
    """Refuse a client whose history continues from an older message than ours. One that sends no history may go on."""
    stored = [row.metadata.get(CLIENT_ID) for row in some_messages(user, session.pk, COMPARED).rows]
    ours = [each for each in stored if each is not None]
    earlier = set(run.known[:-1])
    if run.said is not None and run.said.id not in ours and earlier & set(ours) and ours[0] not in earlier:
        raise HistoryDiverged(
            "this thread has gone on since the message that yours follows; load the thread anew, or begin another"
        )


def _answer(user: User, session: Any, run: Run, answered: ResumeEntry) -> Turn | None:
    is_cancelled = answered.status == "cancelled"
    kind, _, rest = answered.interrupt_id.partition(":")
    # with the run, since an answer whose turn failed may be given again
    key = f"ag-ui-run:{hashlib.sha256(f'{run.run_id} {answered.interrupt_id}'.encode()).hexdigest()}"
    if kind == CONSENT:
        question = question_reads.question(user, rest)
        _must_be_here(session, question.session_id)
        allowed = not is_cancelled and _checked(Consent, answered.payload).approved
        return questions.answer_consent(question, "yes" if allowed else "no", key)
    if kind != PLAN:
        raise NotFound("there is no such question")
    execution_id, _, question_id = rest.partition(":")
    execution = selectors.execution(user, execution_id)
    _must_be_here(session, execution.session_id)
    if is_cancelled:
        questions.cancel_question(execution)
        return None
    text = _checked(PlanAnswer, answered.payload).answer
    return questions.answer_question(execution, text, key, question_id)


def _must_be_here(session: Any, asked_in: uuid.UUID) -> None:
    if asked_in not in {session.pk, session.target_id}:
        raise NotFound("there is no such question")


M = TypeVar("M", bound=BaseModel)


def _checked(shape: type[M], payload: Any) -> M:
    try:
        return shape.model_validate(payload)
    except ValidationError:
        named = ", ".join(shape.model_fields)
        raise BadInput(
            f"the payload does not fit the interrupt's responseSchema: {named}", code="bad_answer"
        ) from None
