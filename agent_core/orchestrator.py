"""Runs one turn: model, tools, model …, within its policy, resumable from its journal.

The turn is a generator in the caller's thread; only the model's stream runs elsewhere, on the
process's loop thread. All that must survive goes out through the ports before it is acted on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Final

from agent_core import journal
from agent_core.control import TurnControl
from agent_core.exceptions import AgentCoreError, ModelError
from agent_core.exchange import Cancelled, Exchange, Stopped, TimedOut, Watch
from agent_core.limits import Limits
from agent_core.models import ModelCall, ModelReply
from agent_core.schema import refusal
from agent_core.types import (
    JSON,
    Ending,
    Entry,
    EventType,
    Role,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnPorts,
    TurnRequest,
    TurnResult,
)

ERROR_TEXTS: Final = {
    "model_unavailable": "The model did not answer.",
    "model_refused": "The model refused the request.",
    "model_not_configured": "The model is not set up on this server.",
    "timeout": "It took too long.",
    "max_tool_calls": "Too many tool calls.",
    "max_failed_tool_outputs": "Too many tools failed.",
    "max_same_failure_signature": "A tool kept failing in the same way.",
    "max_same_tool_intent": "The same tool call was made too often.",
    "internal_error": "Something went wrong.",
}
_LONGEST_DETAIL = 2000
_LONGEST_LOGGED = 300

log = logging.getLogger(__name__)


class _LimitPassed(AgentCoreError):
    """A limit of the policy was passed; the message is its name."""


def run_turn(
    request: TurnRequest, ports: TurnPorts, control: TurnControl
) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the turn's events (status, deltas, tool calls and outputs) and return its result.

    Lets through Stale (from a port, or after ``control.lose``) and whatever else a port raises;
    every other trouble is a result.
    """
    turn = _Turn(request, ports, Watch(control, request.policy.timeout_seconds))
    try:
        yield from turn.run()
    except Stopped:
        return TurnResult(ending=Ending.HANDED_BACK)
    except Cancelled:
        return turn.ended(Ending.CANCELLED)
    except TimedOut as error:
        return turn.failed("timeout", error)
    except _LimitPassed as error:
        return turn.failed(str(error), error)
    except ModelError as error:
        _log(error)
        return turn.failed(error.code, error)
    except _ModelBroke as error:
        return turn.failed("internal_error", error.cause)
    return turn.ended(Ending.SUCCEEDED)


def _log(error: ModelError) -> None:
    """One line per turn that a model ended; the message was rid of keys where it was made."""
    detail = " ".join(str(error).split())[:_LONGEST_LOGGED]
    log.warning("model_failed", extra={"code": error.code, "error": type(error).__name__, "detail": detail})


class _ModelBroke(AgentCoreError):
    """The model's code raised something that is no ModelError: a bug."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


class _Turn:
    """The state of a running turn."""

    def __init__(self, request: TurnRequest, ports: TurnPorts, watch: Watch) -> None:
        self._request = request
        self._ports = ports
        self._watch = watch
        self._specs = {spec.name: spec for spec in request.tools}
        self._limits = Limits(request.policy)
        self._said = journal.rebuild(request.steps, self._specs)
        self._unfinished_text = ""

    def run(self) -> Generator[TurnEvent, None, None]:
        """Go on from the journal to the final answer."""
        self._recount()
        while not self._said.finished:
            if self._said.calls:
                yield from self._run_calls()
            self._watch.check()
            self._inject()
            reply = yield from self._ask()
            self._take(reply)

    def ended(self, ending: Ending) -> TurnResult:
        """Return the result: open calls closed, text that was cut off kept."""
        self._said.close()
        if self._unfinished_text:
            self._said.entries.append(Entry(role=Role.ASSISTANT, content=self._unfinished_text, partial=True))
        return TurnResult(ending=ending, entries=tuple(self._said.entries), usage=self._said.usage)

    def failed(self, code: str, error: Exception) -> TurnResult:
        """Return a failure: a short text for people, class and message for operators."""
        detail = f"{type(error).__name__}: {error}"[:_LONGEST_DETAIL]
        return replace(
            self.ended(Ending.FAILED),
            error_code=code,
            error_text=ERROR_TEXTS[code],
            error_detail=detail,
        )

    def _recount(self) -> None:
        """Bring the policy's counters to where the journal is; a limit it passed ends the turn."""
        for entry in self._said.entries:
            is_open = bool(self._said.calls) and entry.calls is self._said.calls
            for call in entry.calls:
                if not is_open or self._reached(call):
                    self._count(self._limits.called(call))
            for result in entry.results:
                self._count(self._limits.returned(result))
        for result in self._said.results.values():
            self._count(self._limits.returned(result))

    def _reached(self, call: ToolCall) -> bool:
        return call.id in self._said.intended or call.id in self._said.results

    def _count(self, passed: str | None) -> None:
        if passed is not None:
            raise _LimitPassed(passed)

    def _inject(self) -> None:
        """Take in what people wrote meanwhile, but not before a fresh turn's first model call."""
        if self._said.entries or self._request.attempt > 1:
            for text in self._ports.injected():
                self._said.entries.append(Entry(role=Role.USER, content=text))

    def _ask(self) -> Generator[TurnEvent, None, ModelReply]:
        trigger = Entry(role=Role.USER, content=self._request.message)
        exchange = Exchange(
            model=self._request.model,
            call=ModelCall(
                system_prompt=self._request.system_prompt,
                entries=(*self._request.history, trigger, *self._said.entries),
                tools=self._request.tools,
            ),
            policy=self._request.policy,
            watch=self._watch,
            labels={"attempt": self._request.attempt, "step": self._said.responses + 1},
        )
        try:
            return (yield from exchange.run())
        except AgentCoreError:
            self._unfinished_text = exchange.text
            raise
        except Exception as error:
            self._unfinished_text = exchange.text
            raise _ModelBroke(error) from error

    def _take(self, reply: ModelReply) -> None:
        """Take a reply into the transcript; journaled first when it has calls."""
        entry = Entry(role=Role.ASSISTANT, content=reply.text, calls=self._with_ids(reply.calls))
        if entry.calls:
            self._ports.responded(entry, reply.usage)
        self._said.said(entry, reply.usage)

    def _with_ids(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Give calls ids that are unique in the turn; some servers number from 0 each time."""
        seen = {call.id for entry in self._said.entries for call in entry.calls}
        named = []
        for number, call in enumerate(calls, start=1):
            is_new = call.id and call.id not in seen
            name = call.id if is_new else f"call-{self._said.responses + 1}-{number}-{call.id}"
            seen.add(name)
            named.append(replace(call, id=name))
        return tuple(named)

    def _run_calls(self) -> Generator[TurnEvent, None, None]:
        """Make the open calls in their order, then close them into one tool entry."""
        for call in self._said.calls:
            if call.id in self._said.results:
                continue
            self._watch.check()
            if not self._reached(call):
                self._count(self._limits.called(call))
            yield _event(EventType.TOOL_CALL, call.to_json())
            result = self._result_of(call)
            self._said.results[call.id] = result
            yield _event(EventType.TOOL_OUTPUT, result.to_json())
            self._count(self._limits.returned(result))
        self._said.close()

    def _result_of(self, call: ToolCall) -> ToolResult:
        """Make one call, unless it must not or need not be made (rule 1.9)."""
        intended = call.id in self._said.intended
        refused = refusal(call, self._specs)
        if intended and (refused is not None or not self._specs[call.name].idempotent):
            return self._ports.outcome_unknown(call)
        if refused is not None:
            return refused
        if not intended:
            self._ports.intend(call)
            self._said.intended.add(call.id)
        return self._make(call)

    def _make(self, call: ToolCall) -> ToolResult:
        control = self._watch.control
        longest = time.monotonic() + self._request.policy.tool_timeout_seconds
        control.tool_deadline = min(longest, self._watch.deadline)
        try:
            return self._ports.call(call)
        finally:
            control.tool_deadline = None


def _event(kind: EventType, content: JSON) -> TurnEvent:
    return TurnEvent(type=kind, content=content)
