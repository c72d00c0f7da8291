"""The beginning of a run: what a RunAgentInput asks for, which session its thread is, and how it becomes a turn."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ag_ui.core import DataSource, ImagePart, ResumeEntry, RunAgentInput, TextPart, UserMessage
from django.contrib.auth.models import User
from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from sessions_app.exceptions import BadInput, HistoryDiverged, NotFound, SessionExists
from sessions_app.memory.files import MOST_FILES, GivenFile, image_in_base64, with_note
from sessions_app.models import Turn
from sessions_app.questions import question_reads, questions
from sessions_app.queue.receive import MessageInput, program_message, receive
from sessions_app.reads import selectors
from sessions_app.sessions.history import some_messages
from sessions_app.sessions.open import open_session
from sessions_app.tokens.reach import limit_of

LONGEST_ID = 150  # characters of a thread's, message's or interrupt's id
BACKGROUND_ROLES = frozenset({"system", "developer", "activity", "reasoning"})


@dataclass(frozen=True, kw_only=True)
class Said:
    """A person's message. `id` is the client's."""

    id: str
    text: str
    images: tuple[GivenFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """A client's request: a new message, an answer to a question (its payload is not checked yet), or neither, to read
    the history.

    `known`: the ids of the person's messages that the client shows, in order.
    """

    thread_id: str
    run_id: str
    said: Said | None
    answered: ResumeEntry | None
    known: tuple[str, ...]


def read_run(data: Any) -> Run:
    """Check a body. BadInput: it is no RunAgentInput, or asks for what this server does not do."""
    try:
        given = RunAgentInput.model_validate(data)
    except ValidationError as error:
        raise BadInput(f"this is no RunAgentInput: {_reasons(error)}", code="bad_run") from None
    for named in (given.thread_id, given.run_id):
        _check_id(named)
    answered = _answer_in(given)
    return Run(
        thread_id=given.thread_id,
        run_id=given.run_id,
        said=None if answered else _message_in(given),
        answered=answered,
        known=tuple(each.id for each in given.messages if isinstance(each, UserMessage)),
    )


def _message_in(given: RunAgentInput) -> Said | None:
    """The last message, if it is the person's. None: nothing new was said."""
    spoken = [each for each in given.messages if each.role not in BACKGROUND_ROLES]
    if not spoken or spoken[-1].role == "assistant":
        return None
    last = spoken[-1]
    if not isinstance(last, UserMessage):
        text = "tools of the client are not supported: an agent calls its own tools only"
        raise BadInput(text, code="unsupported_message")
    _check_id(last.id)
    return _said(last)


def _said(message: UserMessage) -> Said:
    if isinstance(message.content, str):
        return Said(id=message.id, text=message.content)
    texts, images = [], []
    for part in message.content:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ImagePart) and isinstance(part.source, DataSource):
            images.append(image_in_base64(part.source.value))
        else:
            text = "a message may have text, and images with a source of the type `data`"
            raise BadInput(text, code="unsupported_message")
    if len(images) > MOST_FILES:
        raise BadInput(f"a message may have at most {MOST_FILES} images", code="unsupported_message")
    return Said(id=message.id, text="\n".join(texts), images=tuple(images))


def _answer_in(given: RunAgentInput) -> ResumeEntry | None:
    if not given.resume:
        return None
    if len(given.resume) > 1:
        raise BadInput("answer one interrupt with each run", code="bad_run")
    _check_id(given.resume[0].interrupt_id)
    return given.resume[0]


def _check_id(text: str) -> None:
    if not text or len(text) > LONGEST_ID or not text.isprintable():
        raise BadInput(f"an id has 1 to {LONGEST_ID} printable characters", code="bad_run")


def _reasons(error: ValidationError) -> str:
    """The first three fields that are wrong. What was given is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))[:100]}: {each['msg'][:200]}" for each in found[:3])


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
    """Return the user's session with the thread's id, or open one for the thread.

    The id of another user's session is just a name for a new thread of this user. For a token that is limited
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
    """Return the turn of a run, queued unless the same run was sent before. None: there is nothing to do.

    It raises what `receive` and answering a question raise; HistoryDiverged.
    """
    if run.answered is not None:
        return _answer(user, session, run, run.answered)
    if run.said is None:
        return None
    _compare(user, session, run)
    return receive(session.pk, _message(user, run.said), user.pk)


def _message(user: User, said: Said) -> MessageInput:
    text = with_note(said.text, said.images)
    about = {"message": {CLIENT_ID: said.id}, "limited": bool(limit_of(user))}
    message = program_message(text, f"ag-ui:{said.id}", **about)
    return replace(message, files=said.images)


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
    limited = bool(limit_of(user))
    return questions.answer_question(execution, text, key, question_id, limited=limited)


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
