"""The end of a run: the outcome of its turn, its questions, and the history for a client that needs it."""

from __future__ import annotations

import json
import uuid
from typing import Any

from ag_ui import core
from django.contrib.auth.models import User

from agent_core.execution import Status
from agent_core.types import Ended, Role
from interfaces.ag_ui.run_begin import CLIENT_ID, CONSENT, PLAN, Consent, PlanAnswer
from sessions_app.models import TurnState
from sessions_app.reads import selectors
from sessions_app.sessions.history import some_messages

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
