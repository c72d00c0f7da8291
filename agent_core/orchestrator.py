"""Runs one turn: model, tools, model …, within its policy, resumable from its journal.

The turn is a generator in the caller's thread; only the model's stream runs elsewhere, on the
process's loop thread. All that must survive goes out through the ports before it is acted on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from agent_core import journal
from agent_core.calls import Calls
from agent_core.control import TurnControl
from agent_core.endings import ERROR_TEXTS, GivenUp, ModelBroke, detail_of, told
from agent_core.exceptions import AgentCoreError
from agent_core.exchange import Exchange, Watch
from agent_core.limits import Limits
from agent_core.models import ModelCall, ModelReply
from agent_core.ports import TurnPorts
from agent_core.types import (
    JSON,
    Ending,
    Entry,
    EventType,
    Role,
    ToolCall,
    TurnEvent,
    TurnRequest,
    TurnResult,
)


def run_turn(
    request: TurnRequest, ports: TurnPorts, control: TurnControl
) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the turn's events (status, deltas, tool calls and outputs) and return its result.

    Lets through Stale (from a port, or after ``control.lose``) and whatever else a port raises;
    every other trouble is a result.
    """
    return (yield from told(_Turn(request, ports, Watch(control, request.policy.timeout_seconds))))


class _Turn:
    """The state of a running turn."""

    def __init__(self, request: TurnRequest, ports: TurnPorts, watch: Watch) -> None:
        self._request = request
        self._ports = ports
        self._watch = watch
        self._specs = {spec.name: spec for spec in request.tools}
        self._limits = Limits(request.policy)
        self._calls = Calls(specs=self._specs, ports=ports, watch=watch, policy=request.policy)
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
        return replace(
            self.ended(Ending.FAILED),
            error_code=code,
            error_text=ERROR_TEXTS[code],
            error_detail=detail_of(error),
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
            raise GivenUp(passed)

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
            raise ModelBroke(error) from error

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
            result = self._calls.result_of(call, self._said.intended)
            self._said.results[call.id] = result
            yield _event(EventType.TOOL_OUTPUT, result.to_json())
            self._count(self._limits.returned(result))
        self._said.close()


def _event(kind: EventType, content: JSON) -> TurnEvent:
    return TurnEvent(type=kind, content=content)
