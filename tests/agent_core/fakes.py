"""The tests' own ports, tools and model, and what drives a turn."""

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_core import models
from agent_core.exceptions import ToolFailed
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.policy import TurnPolicy
from agent_core.strategies import STRATEGIES, Context, ContextInput
from agent_core.tool_spec import ToolSpec
from agent_core.turn.control import TurnControl
from agent_core.turn.run import run_turn
from agent_core.types import (
    Entry,
    Role,
    Step,
    StepKind,
    ToolCall,
    ToolOutcome,
    ToolResult,
    TurnEvent,
    TurnRequest,
    TurnResult,
    Usage,
)

OBJECT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = (
    ToolSpec(name="write", description="Changes something.", parameters=OBJECT),
    ToolSpec(name="read", description="Changes nothing.", parameters=OBJECT, idempotent=True),
    ToolSpec(name="broken", description="Fails.", parameters=OBJECT),
)
QUICK = TurnPolicy(backoff_seconds=0.01)


class Crash(Exception):
    """The worker died here."""


@dataclass
class Ports:
    """A journal in memory. ``crash_at`` counts port calls; the crash comes before the write."""

    steps: list[Step] = field(default_factory=list)
    ran: list[ToolCall] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    asked: int = 0
    crash_at: int | None = None
    on_call: Callable[[ToolCall], str] | None = None
    writes: int = 0

    def responded(self, entry: Entry, usage: Usage) -> None:
        self._write(StepKind.RESPONSE, {"entry": entry.to_json(), "usage": usage.to_json()})

    def intend(self, call: ToolCall) -> None:
        self._write(StepKind.INTENT, call.to_json())

    def call(self, call: ToolCall) -> ToolResult:
        self.ran.append(call)
        error_class = ""
        try:
            output, outcome = self._run(call), ToolOutcome.OK
        except ToolFailed as error:
            output, outcome, error_class = str(error), ToolOutcome.FAILED, "ToolFailed"
        return self._result(call, output, outcome, error_class)

    def outcome_unknown(self, call: ToolCall) -> ToolResult:
        return self._result(call, "unknown", ToolOutcome.UNKNOWN, "")

    def injected(self) -> tuple[str, ...]:
        self.asked += 1
        texts, self.waiting = tuple(self.waiting), []
        if texts:
            self._write(StepKind.INJECT, {"texts": list(texts)})
        return texts

    def kinds(self) -> list[str]:
        return [str(step.kind) for step in self.steps]

    def _run(self, call: ToolCall) -> str:
        if self.on_call:
            return self.on_call(call)
        if call.name == "broken":
            raise ToolFailed(f"Broken: {call.arguments.get('text', 'always')}")
        return f"{call.name} {call.arguments.get('n', '')}".strip()

    def _result(self, call: ToolCall, output: str, outcome: ToolOutcome, error_class: str) -> ToolResult:
        result = ToolResult(
            id=call.id, name=call.name, output=output, outcome=outcome, error_class=error_class
        )
        self._write(StepKind.RESULT, result.to_json())
        return result

    def _write(self, kind: StepKind, data: dict[str, Any]) -> None:
        self.writes += 1
        if self.writes == self.crash_at:
            raise Crash
        self.steps.append(Step(n=len(self.steps) + 1, kind=kind, data=data))


Stream = Callable[[], AsyncIterator[str | ModelReply]]
Reply = ModelReply | Exception | Stream


class ScriptedModel:
    """Gives the n-th reply to a turn that has n - 1 responses already, so it can be resumed."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.calls: list[ModelCall] = []

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        self.calls.append(call)
        begin = max((n for n, entry in enumerate(call.entries) if entry.content.startswith("go")), default=0)
        said = sum(1 for entry in call.entries[begin:] if entry.role is Role.ASSISTANT)
        reply = self.replies[said]
        if isinstance(reply, Exception):
            raise reply
        if not isinstance(reply, ModelReply):
            async for item in reply():
                yield item
            return
        if reply.text:
            yield reply.text[:3]
            yield reply.text[3:]
        yield reply


def script(*replies: Reply) -> ScriptedModel:
    """Make a scripted model known as "scripted"."""
    model = ScriptedModel(replies)
    models.register("scripted", lambda: model)
    return model


def says(text: str) -> ModelReply:
    return ModelReply(text=text, usage=Usage(input_tokens=10, output_tokens=2, requests=1))


def calls(*wanted: ToolCall, text: str = "") -> ModelReply:
    return ModelReply(text=text, calls=wanted, usage=Usage(input_tokens=10, output_tokens=1, requests=1))


def tool_call(name: str = "write", **arguments: Any) -> ToolCall:
    return ToolCall(id=f"{name}-{arguments.get('n', 0)}", name=name, arguments=arguments)


def request(
    message: str = "go", *, model: str = "scripted", history: Iterable[Entry] = (), **more: Any
) -> TurnRequest:
    more.setdefault("policy", QUICK)
    more.setdefault("tools", TOOLS)
    return TurnRequest(
        system_prompt="You are a test.", history=tuple(history), message=message, model=model, **more
    )


@dataclass
class Run:
    """What a turn yielded and returned."""

    events: list[TurnEvent]
    result: TurnResult

    def types(self) -> list[str]:
        return [str(event.type) for event in self.events]

    def texts(self) -> list[str]:
        return [entry.content for entry in self.result.entries]

    def outputs(self) -> list[ToolResult]:
        return [result for entry in self.result.entries for result in entry.results]


def drive(
    given: TurnRequest,
    ports: Ports | None = None,
    control: TurnControl | None = None,
    on_event: Callable[[TurnEvent], None] | None = None,
) -> Run:
    """Run a turn to its end."""
    events, result = played(run_turn(given, ports or Ports(), control or TurnControl()), on_event)
    return Run(events=events, result=result)


def played(
    story: Generator[TurnEvent, None, TurnResult], on_event: Callable[[TurnEvent], None] | None = None
) -> tuple[list[TurnEvent], TurnResult]:
    """The events of a turn, and its result."""
    events: list[TurnEvent] = []
    while True:
        try:
            event = next(story)
        except StopIteration as end:
            return events, end.value
        events.append(event)
        if on_event:
            on_event(event)


def user(text: str) -> Entry:
    return Entry(role=Role.USER, content=text)


def assistant(text: str, *wanted: ToolCall, **more: Any) -> Entry:
    return Entry(role=Role.ASSISTANT, content=text, calls=wanted, **more)


def result_of(call: ToolCall, output: str, outcome: ToolOutcome = ToolOutcome.OK, **more: Any) -> ToolResult:
    return ToolResult(id=call.id, name=call.name, output=output, outcome=outcome, **more)


def returned(*results: ToolResult) -> Entry:
    return Entry(role=Role.TOOL, content="", results=results)


def made(call: ToolCall, output: str, outcome: ToolOutcome = ToolOutcome.OK) -> tuple[Entry, Entry]:
    """A response that makes this call, and what it brought."""
    return assistant("", call), returned(result_of(call, output, outcome))


def spec(name: str, **more: Any) -> ToolSpec:
    return ToolSpec(name=name, **({"description": "", "parameters": {"type": "object"}} | more))


def built(kind: str, trigger: str = "hello", **more: Any) -> Context:
    """The prompts of a session of this kind."""
    values = {"agent_name": "Ada", "timezone": "UTC", "documents": {}} | more
    return STRATEGIES[kind](ContextInput(trigger=trigger, **values))
