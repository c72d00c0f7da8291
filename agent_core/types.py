"""The data that crosses the border of the agent core. All of it is frozen.

What is stored (journal, history) has ``to_json`` and ``from_json``; ``from_json`` ignores keys it
does not know, so that an older process can read what a newer one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent_core.execution import Execution
from agent_core.policy import TurnPolicy
from agent_core.verdict import Verdict

JSON = dict[str, Any]


class Role(StrEnum):
    """Who said an entry."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolOutcome(StrEnum):
    """What came of a tool call. Only ``FAILED`` counts towards the policy's failure limits."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class StepKind(StrEnum):
    """The kinds of journal steps."""

    PROMPT = "prompt"
    RESPONSE = "response"
    INTENT = "intent"
    RESULT = "result"
    INJECT = "inject"
    CHECKPOINT = "checkpoint"
    MEMORY = "memory"


class EventType(StrEnum):
    """The events of a turn (rule 3.1), and of a planned one."""

    TURN_START = "turn_start"
    STATUS = "status"
    LLM_DELTA = "llm_delta"
    TOOL_CALL = "tool_call"
    TOOL_OUTPUT = "tool_output"
    TURN_COMPLETE = "turn_complete"
    TURN_ERROR = "turn_error"
    PLANNING = "planning"
    PLAN = "plan"
    STEP_START = "step_start"
    STEP_COMPLETE = "step_complete"
    REPLAN = "replan"
    WAITING = "waiting"
    DONE = "done"


class Effect(StrEnum):
    """What a tool may do (rule 3.5). A dangerous one needs the person's yes."""

    READ = "read"
    WRITE = "write"
    DANGEROUS = "dangerous"


class Ending(StrEnum):
    """How ``run_turn`` ended. ``HANDED_BACK`` leaves the turn running for another worker."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_BACK = "handed_back"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call the model asked for. ``unparsed`` holds arguments that were no JSON object."""

    id: str
    name: str
    arguments: JSON
    unparsed: str | None = None

    def to_json(self) -> JSON:
        """Return ``{id, name, arguments}`` and, only where needed, ``unparsed``."""
        data: JSON = {"id": self.id, "name": self.name, "arguments": self.arguments}
        if self.unparsed is not None:
            data["unparsed"] = self.unparsed
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolCall:
        """Read what ``to_json`` wrote."""
        return cls(
            id=data["id"],
            name=data["name"],
            arguments=dict(data["arguments"]),
            unparsed=data.get("unparsed"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a call gave back. ``error_class`` names a failed one's exception, else it is empty."""

    id: str
    name: str
    output: str
    outcome: ToolOutcome
    error_class: str = ""

    def to_json(self) -> JSON:
        """Return ``{id, name, output, outcome}`` and, only where needed, ``error_class``."""
        data: JSON = {
            "id": self.id,
            "name": self.name,
            "output": self.output,
            "outcome": str(self.outcome),
        }
        if self.error_class:
            data["error_class"] = self.error_class
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolResult:
        """Read what ``to_json`` wrote."""
        return cls(
            id=data["id"],
            name=data["name"],
            output=data["output"],
            outcome=ToolOutcome(data["outcome"]),
            error_class=data.get("error_class") or "",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One entry of a conversation as the model sees it.

    An assistant entry may hold text and calls; a tool entry holds results; ``partial`` marks text
    that was cut off by a cancel or a failure.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    partial: bool = False

    def to_json(self) -> JSON:
        """Return ``{role, content}`` and what is not empty of ``calls, results, partial``."""
        data: JSON = {"role": str(self.role), "content": self.content}
        if self.calls:
            data["calls"] = [call.to_json() for call in self.calls]
        if self.results:
            data["results"] = [result.to_json() for result in self.results]
        if self.partial:
            data["partial"] = True
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """Read what ``to_json`` wrote."""
        return cls(
            role=Role(data["role"]),
            content=data.get("content") or "",
            calls=tuple(ToolCall.from_json(call) for call in data.get("calls") or ()),
            results=tuple(ToolResult.from_json(result) for result in data.get("results") or ()),
            partial=bool(data.get("partial", False)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens and model requests used."""

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            requests=self.requests + other.requests,
        )

    def to_json(self) -> JSON:
        """Return the three counts by name."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """Read what ``to_json`` wrote; a missing count is 0."""
        return cls(
            input_tokens=int(data.get("input_tokens") or 0),
            output_tokens=int(data.get("output_tokens") or 0),
            requests=int(data.get("requests") or 0),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a turn's journal, in the order of ``n``.

    ``data`` by kind: response ``{"entry": Entry, "usage": Usage}``; intent: a ToolCall; result: a
    ToolResult; inject ``{"texts": [str]}``; checkpoint ``{"status", "step", "usage": Usage}``;
    prompt and memory are never read here.
    """

    n: int
    kind: StepKind
    data: JSON

    def to_json(self) -> JSON:
        """Return ``{n, kind, data}``."""
        return {"n": self.n, "kind": str(self.kind), "data": self.data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """Read what ``to_json`` wrote."""
        return cls(n=data["n"], kind=StepKind(data["kind"]), data=dict(data["data"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it. ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JSON
    idempotent: bool = False
    effect: Effect = Effect.READ


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRequest:
    """All that a turn starts from. ``steps`` is the journal of earlier attempts (n >= 1)."""

    system_prompt: str
    history: tuple[Entry, ...]
    message: str
    model: str
    steps: tuple[Step, ...] = ()
    policy: TurnPolicy = field(default_factory=TurnPolicy)
    attempt: int = 1
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEvent:
    """Something a turn did, as it did it.

    ``content`` by type: llm_delta ``{text, attempt, step, try}``; tool_call ``{id, name,
    arguments}``; tool_output ``{id, name, output, outcome}``; status ``{status, text, …}``.
    """

    type: EventType
    content: JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnResult:
    """What came of a turn. ``entries`` is everything said in it after its trigger, in order.

    ``error_code`` and ``error_text`` (a short sentence for people) are set when it failed;
    ``error_detail`` (class and message) is for operators only.
    """

    ending: Ending
    entries: tuple[Entry, ...] = ()
    error_code: str | None = None
    error_text: str | None = None
    error_detail: str | None = None
    usage: Usage = Usage()
    verdict: Verdict | None = None  # where the reply was judged
    execution: Execution | None = (
        None  # of a planned turn: what it comes to, to be stored with the turn's end
    )

    @property
    def reply(self) -> str:
        """The content of the last assistant entry, or an empty string."""
        said = [entry.content for entry in self.entries if entry.role is Role.ASSISTANT]
        return said[-1] if said else ""
