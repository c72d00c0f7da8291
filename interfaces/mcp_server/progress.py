"""The stored state of a request to an agent: its first turn, the turns after answered questions, the open question.

No process keeps any of it, so every web process gives the same answer, also after all of them were killed. In the Tasks
extension (SEP-2663), `ask` returns a task, whose id is that of the turn with its session. The SDK has no types of this
extension yet, so they are here, on its base types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from django.conf import settings
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    InputResponses,
    RequestParams,
    Result,
    TextContent,
)
from pydantic import Field

from agent_core.text.formats import utc_text
from agent_core.types import with_note
from interfaces.mcp_server.arguments import LARGEST_ID, LONGEST_ANSWER
from interfaces.mcp_server.results import AskResult, Question
from interfaces.mcp_server.tools import Caller
from sessions_app.exceptions import (
    BadInput,
    ExecutionEnded,
    IdempotencyMismatch,
    NotFound,
    NotWaiting,
    QuestionTaken,
    TurnEnded,
)
from sessions_app.questions import questions
from sessions_app.questions.question_reads import OpenQuestion, question, question_after, turn_after
from sessions_app.queue.cancel import cancel_turn
from sessions_app.reads import selectors
from sessions_app.tokens.reach import limit_of

MOST_ROUNDS = 50  # answered questions of one request that are followed
ENDED = frozenset({"succeeded", "merged", "failed", "cancelled"})
STATES = {"merged": "succeeded", "queued": "working", "running": "working"}
STALE = (NotWaiting, QuestionTaken, IdempotencyMismatch, ExecutionEnded)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A request's first turn, its last one, and the question that waits since that one ended."""

    first: Any
    last: Any
    question: OpenQuestion | None

    @property
    def handle(self) -> str:
        """The id of the task: with the session's random id, so that it cannot be guessed."""
        return f"{self.first.session_id}.{self.first.pk}"

    @property
    def state(self) -> str:
        """The state, as a tool's result has it."""
        if self.question is not None:
            return "input_required"
        return STATES.get(self.last.state) or str(self.last.state)

    @property
    def question_key(self) -> str:
        """The key of the waiting question among the requests for input: a question that is asked again has another."""
        return f"{self.question.id}.{self.last.pk}" if self.question else ""

    def result(self) -> AskResult:
        """The state as the result of a tool."""
        asked = self.question and Question(
            id=self.question.id, text=self.question.text, consent=bool(self.question.calls)
        )
        return AskResult.model_validate(
            {
                "turn": self.first.pk,
                "session": str(self.first.session_id),
                "state": self.state,
                "answer": self.last.reply,
                "ended_by": self.last.ended_by or None,
                "question": asked,
                "error": self.last.error or None,
                "usage": self.last.usage or None,
            }
        )

    def request(self) -> ElicitRequest:
        """The waiting question as a request to the person at the client."""
        assert self.question is not None  # noqa: S101 - for the type checker
        if self.question.calls:
            field: dict[str, Any] = {"type": "boolean", "title": "Allow it just this once"}
            name = "allow"
        else:
            field, name = {"type": "string", "minLength": 1, "maxLength": LONGEST_ANSWER}, "answer"
        schema = {"type": "object", "properties": {name: field}, "required": [name]}
        return ElicitRequest(
            params=ElicitRequestFormParams(message=self.question.text, requested_schema=schema)
        )


def progress_of(caller: Caller, turn_id: int) -> Progress:
    """The state of one of the user's requests. NotFound."""
    first: Any = selectors.turn(caller.user, turn_id)
    last = first
    for _ in range(MOST_ROUNDS):
        following = turn_after(last, _key_after(last)) if last.state in ENDED else None
        if following is None:
            break
        last = following
    if last is not first:
        last = selectors.turn(caller.user, last.pk)
    waits = question_after(last) if last.state in ENDED else None
    return Progress(first=first, last=last, question=waits)


def progress_by_handle(caller: Caller, handle: str) -> Progress:
    """The state of the request with this task id. NotFound."""
    session, _, digits = handle.partition(".")
    if digits.isascii() and digits.isdigit() and len(digits) <= len(str(LARGEST_ID)):
        found = progress_of(caller, int(digits))
        if str(found.first.session_id) == session:
            return found
    raise NotFound("there is no such task")


def _key_after(turn: Any) -> str:
    """The idempotency key of the turn that answers this turn's question, so that the question is answered once."""
    return f"mcp-answer:{turn.pk}"


def answer_by_person(caller: Caller, found: Progress, given: Mapping[str, Any]) -> bool:
    """Store a person's answer to the waiting question, if it is among the responses; whether it was.

    Responses to other questions, also to earlier ones, change nothing. BadInput for a malformed answer.
    """
    response = given.get(found.question_key) if found.question else None
    if not isinstance(response, ElicitResult) or response.action == "cancel" or found.question is None:
        return False
    try:
        if response.action == "decline" and not found.question.calls:
            questions.cancel_question(selectors.execution(caller.user, found.question.execution))
        else:
            _answer(caller, found, found.question, _words(found.question, response))
    except STALE:
        return False
    return True


def _words(asked: OpenQuestion, response: ElicitResult) -> str:
    """The answer as a message. BadInput."""
    content = response.content or {}
    if asked.calls:
        allow = response.action == "accept" and content.get("allow")
        if response.action == "accept" and not isinstance(allow, bool):
            raise BadInput("allow must be true or false")
        return "yes" if allow is True else "no"
    answer = content.get("answer")
    if not isinstance(answer, str) or len(answer) > LONGEST_ANSWER:
        raise BadInput(f"answer must be a text of at most {LONGEST_ANSWER:,} characters")
    return answer


def _answer(caller: Caller, found: Progress, asked: OpenQuestion, words: str) -> None:
    if asked.calls:
        questions.answer_consent(question(caller.user, asked.id), words, _key_after(found.last))
    else:
        execution = selectors.execution(caller.user, asked.execution)
        limited = bool(limit_of(caller.user))
        questions.answer_question(execution, words, _key_after(found.last), asked.id, limited=limited)


def answer_by_program(caller: Caller, found: Progress, question_id: str, words: str) -> None:
    """Store an answer that a program gives. BadInput for a question for consent; NotWaiting for another question."""
    if found.question is None or found.question.id != question_id:
        raise NotWaiting
    if found.question.calls:
        text = "a person must answer this question: in Rondo's pages, or in a client that asks people (elicitation)"
        raise BadInput(text, code="needs_person")
    _answer(caller, found, found.question, words)


def stop(caller: Caller, found: Progress) -> None:
    """Stop the request: its running turn, or its waiting question. One that has ended stays as it is."""
    try:
        if found.question is None:
            cancel_turn(found.last.pk)
        elif found.question.execution:
            questions.cancel_question(selectors.execution(caller.user, found.question.execution))
        else:
            _answer(caller, found, found.question, "no")
    except (TurnEnded, *STALE):
        return


EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 1_000
DAY_MS = 24 * 3600 * 1000
LONGEST_HANDLE = 64  # characters
MOST_RESPONSES = 20
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(Result):
    """A task. `resultType` is `task` where it is created, `complete` where it is read."""

    result_type: Literal["task", "complete"]
    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int = POLL_MS
    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None

    def on_wire(self) -> dict[str, Any]:
        """Return the task as JSON, without empty fields, except the time to live, which may be null."""
        return {"ttlMs": self.ttl_ms} | self.model_dump(by_alias=True, mode="json", exclude_none=True)


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: Annotated[str, Field(max_length=LONGEST_HANDLE)]


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: Annotated[InputResponses, Field(max_length=MOST_RESPONSES)]


def task_of(found: Progress, *, created: bool = False) -> dict[str, Any]:
    """The task of a request, with its result or the question that waits.

    The extension reserves `failed` for errors of JSON-RPC: a turn that failed is a result with `isError`.
    """
    status = _status(found.state)
    first, last = found.first, found.last
    updated = last.finished_at or last.started_at or last.queued_at
    days = settings.RONDO_KEEP_TURNS_DAYS
    task = Task(
        result_type="task" if created else "complete",
        task_id=found.handle,
        status=status,
        status_message=last.error or None,
        created_at=utc_text(first.queued_at),
        last_updated_at=utc_text(updated),
        ttl_ms=days * DAY_MS if days else None,
    )
    if not created and status == "input_required":
        task.input_requests = {found.question_key: found.request()}
    if not created and status == "completed":
        task.result = result_of(found.result()).model_dump(by_alias=True, mode="json", exclude_none=True)
    return task.on_wire()


def _status(state: str) -> Status:
    ended: dict[str, Status] = {"succeeded": "completed", "failed": "completed", "cancelled": "cancelled"}
    return ended.get(state) or ("input_required" if state == "input_required" else "working")


def result_of(given: AskResult) -> CallToolResult:
    """The result of a tool that returns the state of a request."""
    text = with_note(given.answer or given.error or "", given.ended_by or "")
    if given.state == "working":
        text = f"The agent is still working. Read the answer with get_answer and turn {given.turn}."
    elif given.question is not None:
        how = (
            "A person must answer it: in Rondo's pages, or in a client that asks people (elicitation)."
            if given.question.consent
            else f"Answer it with answer_question, turn {given.turn} and question {given.question.id!r}."
        )
        text = f"{given.question.text}\n\n{how}"
    elif given.state == "failed":
        text = given.error or "The turn failed."
    elif given.state == "cancelled":
        text = given.error or "The turn was cancelled."
    return CallToolResult(
        content=[TextContent(text=text or "Finished with no output.")],
        structured_content=given.model_dump(mode="json"),
        is_error=given.state == "failed",
    )


def responses_of(given: InputResponses | None) -> dict[str, ElicitResult]:
    """The answers to questions among the responses."""
    found = given or {}
    return {key: each for key, each in list(found.items())[:MOST_RESPONSES] if isinstance(each, ElicitResult)}
