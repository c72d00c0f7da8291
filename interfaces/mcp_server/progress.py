"""The stored state of a request to an agent: its first turn, the turns after answered questions, the open question.

No process keeps any of it, so every web process gives the same answer, also after all of them were killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

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
        questions.answer_question(execution, words, _key_after(found.last), asked.id)


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
