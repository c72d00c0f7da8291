"""The AG-UI events of one run: the items of a stream, then its outcome, its questions and a history if needed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

from ag_ui import core
from django.contrib.auth.models import User

from agent_core.execution import Status
from agent_core.types import Ended, Role
from interfaces.ag_ui.run_begin import CLIENT_ID, CONSENT, PLAN, Consent, PlanAnswer
from sessions_app.models import EventType, TurnState
from sessions_app.reads import selectors
from sessions_app.sessions.history import some_messages
from sessions_app.streams.items import Item

Place = tuple[int, int, int]  # attempt, step and try of a piece of an answer


class RunEvents:
    """The events of one turn, in the order that the protocol asks for: a text or a call begins, goes on and ends.

    After a try that breaks off, or when another worker takes the turn over, the text is sent from its beginning. Sent
    events cannot be taken back: `needs_history` says that the client must get the messages anew before the run ends.
    """

    def __init__(self, turn_id: int, *, is_repeated: bool, has_ended: bool) -> None:
        self.turn_id, self._has_ended = turn_id, has_ended
        self.needs_history = is_repeated  # a client that comes back has missed pieces
        self.asked: set[str] = set()  # ids of the questions that the turn asks
        self._place: Place | None = None
        self._said: list[str] = []  # the texts of this attempt
        self._is_open = False  # the last of them goes on
        self._is_placed = False  # the last of them is that of `_place`, of which more may come after a call
        self._message_id = self._thought_id = ""
        self._open_steps: list[str] = []

    def has_ended(self) -> bool:
        """Whether the turn has ended."""
        return self._has_ended

    def hear(self, item: Item) -> list[core.BaseEvent]:
        """The events of an item; none for an item of another turn."""
        content = item.content
        if item.event is not None:
            content = {"turn": item.event.turn_id, **item.event.content}
        if content.get("turn") != self.turn_id:
            return []
        self._has_ended = item.ends(self.turn_id)
        if item.type == "thought":
            return [*self._end_text(), *self._think(content["text"])]
        if item.type in {"delta", "snapshot"}:
            events = self._piece(content, is_whole=item.type == "snapshot")
        elif self._has_ended:
            events = [*self._end_text(), *self._end_steps()]
        else:
            events = self._stored(item.type, content)
        return [*self._end_thought(), *events] if events or self._has_ended else events

    def _stored(self, kind: str, content: dict[str, Any]) -> list[core.BaseEvent]:
        match kind:
            case EventType.TOOL_CALL:
                return [*self._end_text(), *_call(content)]
            case EventType.TOOL_OUTPUT:
                return [self._output(content)]
            case EventType.PLAN | EventType.REPLAN:
                return [*self._end_text(), self._plan(content)]
            case EventType.STEP_START:
                return [*self._end_text(), *self._end_steps(), self._begin_step(content)]
            case EventType.STEP_COMPLETE:
                return [*self._end_text(), *self._end_steps()]
            case EventType.MESSAGE if content.get("role") == "assistant":
                is_error = content.get("metadata", {}).get("closure") == TurnState.FAILED
                return self._end_text() if is_error else self._settle(content.get("text", ""))
            case EventType.WAITING:
                self.asked.add(content.get("question_id") or "")
        return []

    def _piece(self, content: dict[str, Any], *, is_whole: bool) -> list[core.BaseEvent]:
        """A piece of the running answer, or all of it so far."""
        place: Place = (content["attempt"], content["step"], content["try"])
        text = content["text"]
        if is_whole and self._is_open and place == self._place:
            text = text.removeprefix(content["earlier"])[len(self._said[-1]) :]
        if not text:
            return []
        begun: list[core.BaseEvent] = []
        if not self._is_open or place != self._place:
            begun = self._end_text()
            if self._says_anew(place):
                self.needs_history = True
                self._said.clear()
            begun += self._begin_text(is_more=self._is_placed and place == self._place)
        self._place, self._is_placed = place, True
        return [*begun, self._more(text)]

    def _says_anew(self, place: Place) -> bool:
        """Whether a piece begins the text again: it is of another attempt, or of another try of the same step."""
        before = self._place
        return before is not None and place != before and (place[0] != before[0] or place[1] == before[1])

    def _settle(self, text: str) -> list[core.BaseEvent]:
        """Return events for the part of a message's stored text that was not sent while it was made.

        A message may hold several texts, such as an answer and the question for consent below it.
        """
        whole = text.strip()
        if not whole or whole in (each.strip() for each in self._said):
            return self._end_text()
        for first in range(len(self._said)):
            *before, last = self._said[first:]
            begun = "".join([*(each.rstrip() for each in before), last]).lstrip()
            if whole == begun.rstrip():
                return self._end_text()
            if self._is_open and whole.startswith(begun):
                return [self._more(whole.removeprefix(begun)), *self._end_text()]
        self._is_placed = False
        return [*self._end_text(), *self._begin_text(), self._more(whole), *self._end_text()]

    def _think(self, text: str) -> Iterable[core.BaseEvent]:
        if not self._thought_id:
            self._thought_id = f"turn-{self.turn_id}-thought-{uuid.uuid4().hex[:12]}"
            yield core.ReasoningStartEvent(message_id=self._thought_id)
            yield core.ReasoningMessageStartEvent(message_id=self._thought_id)
        yield core.ReasoningMessageContentEvent(message_id=self._thought_id, delta=text)

    def _end_thought(self) -> Iterable[core.BaseEvent]:
        if self._thought_id:
            yield core.ReasoningMessageEndEvent(message_id=self._thought_id)
            yield core.ReasoningEndEvent(message_id=self._thought_id)
        self._thought_id = ""

    def _begin_text(self, *, is_more: bool = False) -> list[core.BaseEvent]:
        """Begin a text message. `is_more`: it goes on with the last text, which a call of a tool has ended."""
        self._is_open = True
        if not is_more:
            self._said.append("")
        self._message_id = f"turn-{self.turn_id}-{uuid.uuid4().hex[:12]}"
        return [core.TextMessageStartEvent(message_id=self._message_id, role="assistant")]

    def _more(self, text: str) -> core.BaseEvent:
        self._said[-1] += text
        return core.TextMessageContentEvent(message_id=self._message_id, delta=text)

    def _end_text(self) -> list[core.BaseEvent]:
        was_open, self._is_open = self._is_open, False
        return [core.TextMessageEndEvent(message_id=self._message_id)] if was_open else []

    def _output(self, content: dict[str, Any]) -> core.BaseEvent:
        return core.ToolCallResultEvent(
            message_id=f"turn-{self.turn_id}-result-{content['id']}",
            tool_call_id=content["id"],
            content=content.get("output", ""),
            role="tool",
            metadata={"rondo": {"outcome": content["outcome"]}},
        )

    def _plan(self, content: dict[str, Any]) -> core.BaseEvent:
        shown: dict[str, Any] = {
            name: content[name] for name in ("goal", "steps", "action", "why") if name in content
        }
        message_id = f"turn-{self.turn_id}-plan"
        return core.ActivitySnapshotEvent(
            message_id=message_id, activity_type="PLAN", content=shown, replace=True
        )

    def _begin_step(self, content: dict[str, Any]) -> core.BaseEvent:
        name = f"{content.get('step')}: {content.get('title', '')}"
        self._open_steps.append(name)
        return core.StepStartedEvent(step_name=name)

    def _end_steps(self) -> Iterable[core.BaseEvent]:
        ended = [core.StepFinishedEvent(step_name=name) for name in self._open_steps]
        self._open_steps.clear()
        return ended


def _call(content: dict[str, Any]) -> list[core.BaseEvent]:
    arguments = json.dumps(content.get("arguments") or {}, ensure_ascii=False)
    return [
        core.ToolCallStartEvent(tool_call_id=content["id"], tool_call_name=content["name"]),
        core.ToolCallArgsEvent(tool_call_id=content["id"], delta=arguments),
        core.ToolCallEndEvent(tool_call_id=content["id"]),
    ]


SHOWN = 100  # messages of a history


def end_of_run(user: User, turn_id: int, run: core.RunStartedEvent, asked: set[str] | None) -> core.BaseEvent:
    """The last event of a run whose turn has ended. `asked`: its questions; None: all open ones. NotFound."""
    turn = selectors.turn(user, turn_id)
    if turn.state == TurnState.FAILED:
        return core.RunErrorEvent(message=turn.error or "the turn failed", code=turn.error_code or "failed")
    outcome: Any = core.RunFinishedSuccessOutcome()
    if turn.state == TurnState.CANCELLED:
        outcome = core.RunFinishedCancelledOutcome()
    elif waiting := _interrupts(user, turn.session_id, asked):
        outcome = core.RunFinishedInterruptOutcome(interrupts=waiting)
    is_whole = turn.ended_by in ("", Ended.STOP)
    return finished(run, outcome, _usage(turn.usage), None if is_whole else {"ended_by": turn.ended_by})


def finished(
    run: core.RunStartedEvent, outcome: Any, usage: Any = None, result: dict[str, Any] | None = None
) -> core.BaseEvent:
    """The event of a run that did not fail. `result` says how an answer ended that is not whole."""
    return core.RunFinishedEvent(
        thread_id=run.thread_id, run_id=run.run_id, outcome=outcome, usage=usage, result=result
    )


def _usage(usage: dict[str, Any]) -> list[core.TokenUsage] | None:
    counts = {name: usage[name] for name in ("input_tokens", "output_tokens") if name in usage}
    return [core.TokenUsage(**counts)] if counts else None


def _interrupts(user: User, session_id: uuid.UUID, asked: set[str] | None) -> list[core.Interrupt]:
    """The open questions of these ids, which the client can answer."""
    if asked is not None and not asked:
        return []
    session = selectors.session(user, session_id)
    waiting = session.waiting.shown
    return [_interrupt(each) for each in waiting if asked is None or each["question_id"] in asked]


def _interrupt(question: dict[str, Any]) -> core.Interrupt:
    calls = question.get("calls")
    if calls:
        shown = [{name: call[name] for name in ("id", "name", "arguments")} for call in calls]
        return core.Interrupt(
            id=f"{CONSENT}:{question['question_id']}",
            reason="tool_call",
            message=question["question"],
            response_schema=Consent.model_json_schema(),
            metadata={"rondo": {"calls": shown}},
        )
    is_yes_no = question["status"] == Status.WAITING_CONFIRMATION
    return core.Interrupt(
        id=f"{PLAN}:{question['execution']}:{question['question_id']}",
        reason="confirmation" if is_yes_no else "input_required",
        message=question["question"],
        response_schema=PlanAnswer.model_json_schema(),
    )


def history(user: User, session_id: uuid.UUID, run_of: int | None = None) -> list[core.BaseEvent]:
    """The newest messages of a session, oldest first: texts, calls of tools and their results.

    The error of the turn `run_of` is left out, because the last event of the run has it.

    An empty history goes before them: the official client keeps what it shows of a snapshot in its place and appends
    the rest, so that answers that it has under another id would follow after all questions.
    """
    messages: list[Any] = []
    for row in reversed(some_messages(user, session_id, SHOWN).rows):
        if row.metadata.get("closure") != TurnState.FAILED or row.turn_id != run_of:
            messages += _messages(row)
    return [core.MessagesSnapshotEvent(messages=each) for each in ([], messages)]


def _messages(row: Any) -> list[Any]:
    if row.role == Role.ASSISTANT:
        calls = [_tool_call(call) for call in row.parts.get("calls", ())]
        return [core.AssistantMessage(id=f"message-{row.pk}", content=row.content, tool_calls=calls or None)]
    if row.role == Role.TOOL:
        return [
            core.ToolMessage(id=f"message-{row.pk}-{number}", tool_call_id=each["id"], content=each["output"])
            for number, each in enumerate(row.parts.get("results", ()))
        ]
    return [core.UserMessage(id=row.metadata.get(CLIENT_ID) or f"message-{row.pk}", content=row.content)]


def _tool_call(call: dict[str, Any]) -> core.ToolCall:
    arguments = json.dumps(call.get("arguments") or {}, ensure_ascii=False)
    return core.ToolCall(id=call["id"], function=core.FunctionCall(name=call["name"], arguments=arguments))
