"""Runs one turn: model, tools, model …, within its policy. A journal lets another worker resume it.

The turn is a generator in the caller's thread; only the model's stream runs on the process's event loop. Each step is
stored through the ports before the turn acts on it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from agent_core.exceptions import AgentCoreError
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.tools.schema import fit_call
from agent_core.turn import transcript
from agent_core.turn.control import TurnControl, TurnPorts
from agent_core.turn.endings import ModelBroke, run_to_result
from agent_core.turn.exchange import Exchange, Watch
from agent_core.turn.tool_calls import Limits, ToolCaller
from agent_core.types import (
    Ended,
    Ending,
    Entry,
    Role,
    ToolCall,
    TurnEvent,
    TurnEventType,
    TurnRequest,
    TurnResult,
)


def run_turn(
    request: TurnRequest, ports: TurnPorts, control: TurnControl
) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the turn's events (status, deltas, tool calls and outputs) and return its result.

    Raises Stale (from a port, or after ``control.lose``) and whatever else a port raises. Every other error is part of
    the result.
    """
    return (yield from run_to_result(_Turn(request, ports, Watch(control, request.policy.timeout_seconds))))


class _Turn:
    """The state of a running turn."""

    def __init__(self, request: TurnRequest, ports: TurnPorts, watch: Watch) -> None:
        self._request = request
        self._ports = ports
        self._watch = watch
        self._specs = {spec.name: spec for spec in request.tools}
        self._limits = Limits(request.policy)
        self._calls = ToolCaller(specs=self._specs, ports=ports, watch=watch, policy=request.policy)
        self._transcript = transcript.rebuild(request.steps, self._specs)
        self._unfinished_text = ""

    def run(self) -> Generator[TurnEvent, None, None]:
        """Continue from the journal to the final answer."""
        self._recount()
        while not self._transcript.finished:
            if self._transcript.calls:
                yield from self._run_calls()
            self._watch.check()
            self._inject()
            reply = yield from self._ask()
            self._add_reply(reply)

    def ended(self, ending: Ending, _error_text: str = "") -> TurnResult:
        """Return the result, with open calls closed and the text of an unfinished answer."""
        self._transcript.close()
        if self._unfinished_text:
            partial = Entry(role=Role.ASSISTANT, content=self._unfinished_text, partial=True)
            self._transcript.entries.append(partial)
        return TurnResult(
            ending=ending,
            entries=tuple(self._transcript.entries),
            usage=self._transcript.usage,
            model=self._watch.model,
            fell_back=self._watch.fell_back,
        )

    def _recount(self) -> None:
        """Count the calls and results of the journal against the policy. An exceeded limit ends the turn."""
        for entry in self._transcript.entries:
            is_open = bool(self._transcript.calls) and entry.calls is self._transcript.calls
            for call in entry.calls if entry.ended_by is Ended.STOP else ():
                if not is_open or self._is_started(call):
                    self._limits.count_call(call)
            for result in entry.results:
                self._limits.count_result(result)
        for result in self._transcript.results.values():
            self._limits.count_result(result)

    def _is_started(self, call: ToolCall) -> bool:
        return call.id in self._transcript.intended or call.id in self._transcript.results

    def _inject(self) -> None:
        """Add the messages that people sent meanwhile, but not before the first model call of a new turn."""
        if self._transcript.entries or self._request.attempt > 1:
            for text in self._ports.injected():
                self._transcript.entries.append(Entry(role=Role.USER, content=text))

    def _ask(self) -> Generator[TurnEvent, None, ModelReply]:
        trigger = Entry(role=Role.USER, content=self._request.message, images=self._request.images)
        exchange = Exchange(
            request=self._request,
            call=ModelCall(
                system_prompt=self._request.system_prompt,
                entries=(*self._request.history, trigger, *self._transcript.entries),
                tools=self._request.offered,
                kept=1 + len(self._transcript.entries),
                settings=self._request.settings,
            ),
            watch=self._watch,
            labels={"attempt": self._request.attempt, "step": self._transcript.responses + 1},
        )
        try:
            return (yield from exchange.run())
        except AgentCoreError:
            self._unfinished_text = exchange.text
            raise
        except Exception as error:
            self._unfinished_text = exchange.text
            raise ModelBroke(error) from error

    def _add_reply(self, reply: ModelReply) -> None:
        """Add a reply to the transcript. One with calls is journaled first.

        If its calls are not made because it is not whole, the model is asked again, but only once in a row.
        """
        calls = () if reply.ended_by is not Ended.STOP and self._was_not_whole() else reply.calls
        entry = Entry(
            role=Role.ASSISTANT, content=reply.text, calls=self._read(calls), ended_by=reply.ended_by
        )
        if entry.calls:
            self._ports.responded(entry, reply.usage)
        self._transcript.add_response(entry, reply.usage)

    def _was_not_whole(self) -> bool:
        said = (each for each in reversed(self._transcript.entries) if each.role is Role.ASSISTANT)
        return next((each.ended_by is not Ended.STOP for each in said), False)

    def _read(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Fit the calls to their schemas, and make their ids unique within the turn: some servers number from 0."""
        seen = {call.id for entry in self._transcript.entries for call in entry.calls}
        named = []
        for number, call in enumerate(calls, start=1):
            name = call.id
            while not name or name in seen:
                name = f"call-{self._transcript.responses + 1}-{number}-{name}"
            seen.add(name)
            named.append(replace(fit_call(call, self._specs), id=name))
        return tuple(named)

    def _run_calls(self) -> Generator[TurnEvent, None, None]:
        """Make the open calls in order, then add their results as one tool entry."""
        for call in self._transcript.calls_to_make:
            if call.id in self._transcript.results:
                continue
            self._watch.check()
            if not self._is_started(call):
                self._limits.count_call(call)
            yield TurnEvent(type=TurnEventType.TOOL_CALL, content=call.to_json())
            again = self._transcript.was_bad(call)
            result = self._calls.result_of(call, self._transcript.intended, again=again)
            self._transcript.results[call.id] = result
            yield TurnEvent(type=TurnEventType.TOOL_OUTPUT, content=result.to_json())
            self._limits.count_result(result)
        self._transcript.close()
