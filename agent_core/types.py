"""The data that goes into and out of the agent core. All of it is frozen.

Stored data (journal, history) has ``to_json`` and ``from_json``. ``from_json`` ignores unknown keys, so that an older
process can read what a newer one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from agent_core.connections import DEFAULT, CallSettings, Connection
from agent_core.execution import ConsentRequest, Execution
from agent_core.policy import TurnPolicy
from agent_core.spending import MICRO, Account, usd_text
from agent_core.tool_spec import ToolSpec


class Ended(StrEnum):
    """How a model's answer ended. Only an answer that ended by ``STOP`` is whole.

    ``CUT``: the connection or the provider broke it off. A cut answer is requested again, and never stored.
    """

    STOP = "stop"
    LENGTH = "length"
    FILTER = "filter"
    REFUSAL = "refusal"
    CUT = "cut"


# the line below the text of an answer that is not whole
NOTES: Final[dict[str, str]] = {
    Ended.LENGTH: "The answer was cut at its length limit.",
    Ended.FILTER: "The model provider's content filter stopped the answer.",
    Ended.REFUSAL: "The model refused to answer.",
}
# what stands in place of an answer without text
EMPTY: Final[dict[str, str]] = {
    Ended.LENGTH: "The model reached its length limit before it gave an answer.",
    Ended.FILTER: "The model provider's content filter blocked the answer.",
    Ended.REFUSAL: "The model refused to answer.",
}


def with_note(text: str, ended_by: str) -> str:
    """Return the text with a closing line if the answer is not whole, for readers who see nothing but text."""
    note = NOTES.get(ended_by, "")
    is_said = not text.strip() or text in EMPTY.values()
    return f"{text.rstrip()}\n\n({note})" if note and not is_said else text


TOKENS: Final = 1_000  # of an image in a request, roughly
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image of a type that providers read."""

    media_type: str
    content: bytes = field(repr=False)


def media_type_of(content: bytes) -> str:
    """Return the type of a PNG, JPEG, GIF or WebP file; empty for any other."""
    if content.startswith(_PNG):
        return "image/png"
    if content.startswith(_JPEG):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else ""


JSON = dict[str, Any]


def _without_defaults(data: Any) -> JSON:
    """The fields of a dataclass by name, except those that have their default value."""
    values = {each.name: (getattr(data, each.name), each.default) for each in fields(data)}
    return {name: value for name, (value, unset) in values.items() if unset is MISSING or value != unset}


def _known_fields(cls: Any, data: Mapping[str, Any]) -> JSON:
    """The values in the JSON that belong to fields of the dataclass."""
    return {each.name: data[each.name] for each in fields(cls) if each.name in data}


class Role(StrEnum):
    """The author of an entry."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolOutcome(StrEnum):
    """The outcome of a tool call. Only ``FAILED`` counts towards the policy's failure limits."""

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


class TurnEventType(StrEnum):
    """The events of a turn (rule 3.1), planned ones included."""

    TURN_START = "turn_start"
    STATUS = "status"
    LLM_DELTA = "llm_delta"
    LLM_THOUGHT = "llm_thought"
    TOOL_CALL = "tool_call"
    TOOL_OUTPUT = "tool_output"
    PLANNING = "planning"
    PLAN = "plan"
    STEP_START = "step_start"
    STEP_COMPLETE = "step_complete"
    REPLAN = "replan"
    WAITING = "waiting"
    DONE = "done"


class Ending(StrEnum):
    """How ``run_turn`` ended. ``HANDED_BACK`` leaves the turn running for another worker."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_BACK = "handed_back"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call that the model asked for. ``unparsed``: the arguments as text, if they are not a JSON object."""

    id: str
    name: str
    arguments: JSON
    unparsed: str | None = None

    def to_json(self) -> JSON:
        """Return ``{id, name, arguments}`` and, only where needed, ``unparsed``."""
        return _without_defaults(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolCall:
        """Read what ``to_json`` wrote."""
        return cls(**_known_fields(cls, data))


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """The result of a call. ``error_class`` names the exception of a failed one. ``foreign``: its output is text from
    outside.
    """

    id: str
    name: str
    output: str
    outcome: ToolOutcome
    error_class: str = ""
    foreign: bool = False

    def to_json(self) -> JSON:
        """Return ``{id, name, output, outcome}`` and, only where needed, ``error_class`` and ``foreign``."""
        return _without_defaults(self) | {"outcome": str(self.outcome)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ToolResult:
        """Read what ``to_json`` wrote."""
        return cls(**_known_fields(cls, data) | {"outcome": ToolOutcome(data["outcome"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One entry of a conversation as the model sees it.

    An assistant entry may have text and calls; a tool entry has results. ``partial``: a cancel or a failure cut the
    text off. ``ended_by``: how the model ended it; its calls are made only if it is whole. Not stored: ``stranger``
    (written by another system), ``stays`` (kept in a request that is too long), and ``images``, which a person's
    message has.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    partial: bool = False
    ended_by: Ended = Ended.STOP
    stranger: bool = False
    stays: bool = False
    images: tuple[Image, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the entry contains text from outside: another system's post, or output of a tool."""
        return self.stranger or any(result.foreign for result in self.results)

    def to_json(self) -> JSON:
        """Return ``{role, content}`` and, unless empty, ``calls, results, partial, ended_by``."""
        data: JSON = {"role": str(self.role), "content": self.content}
        if self.calls:
            data["calls"] = [call.to_json() for call in self.calls]
        if self.results:
            data["results"] = [result.to_json() for result in self.results]
        if self.partial:
            data["partial"] = True
        if self.ended_by is not Ended.STOP:
            data["ended_by"] = str(self.ended_by)
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
            ended_by=Ended(data.get("ended_by", Ended.STOP)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens and model requests used, and their cost in micro-dollars, as far as there is a price."""

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    micro_usd: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            **{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)}
        )

    def to_json(self) -> JSON:
        """Return the three counts by name and, if it cost something, ``usd`` as a text with six decimal places."""
        counts = {name: getattr(self, name) for name in ("input_tokens", "output_tokens", "requests")}
        return counts | ({"usd": usd_text(self.micro_usd)} if self.micro_usd else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """Read what ``to_json`` wrote; a missing count is 0."""
        counts = {name: int(data.get(name) or 0) for name in ("input_tokens", "output_tokens", "requests")}
        return cls(**counts, micro_usd=int(Decimal(data.get("usd") or 0) * MICRO))


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a turn's journal, in the order of ``n``.

    ``data`` by kind: response ``{"entry": Entry, "usage": Usage}``; intent: a ToolCall; result: a
    ToolResult; inject ``{"texts": [str]}``; checkpoint ``{"status", "step", "usage": Usage}``;
    prompt and memory steps are not read by the agent core.
    """

    n: int
    kind: StepKind
    data: JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRequest:
    """The input of a turn. ``steps`` is the journal of earlier attempts (n >= 1).

    ``tools`` include the withheld ones, so that a call to one is refused with the reason. ``fallback_model`` is asked
    if ``model`` cannot be reached. ``connections`` are those that the two names may mean. ``images`` are the message's.
    ``account`` is what its calls are charged to; None: to their connection alone.
    """

    system_prompt: str
    history: tuple[Entry, ...]
    message: str
    model: str
    steps: tuple[Step, ...] = ()
    policy: TurnPolicy = field(default_factory=TurnPolicy)
    attempt: int = 1
    tools: tuple[ToolSpec, ...] = ()
    fallback_model: str = ""
    settings: CallSettings = DEFAULT
    connections: tuple[Connection, ...] = ()
    images: tuple[Image, ...] = ()
    account: Account | None = None

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is told of."""
        return tuple(spec for spec in self.tools if not spec.withheld)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether a person is told of a reply, and why, in one line of at most 300 characters."""

    notify: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEvent:
    """An event of a running turn.

    ``content`` by type: llm_delta and llm_thought ``{text, attempt, step, try}``; tool_call ``{id, name,
    arguments}``; tool_output ``{id, name, output, outcome}``; status ``{status, text, …}``.
    """

    type: TurnEventType
    content: JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnResult:
    """The result of a turn. ``entries`` are those after its trigger, in order.

    ``error_code``, ``error_text`` (for people) and ``error_detail`` (for operators) are set if it failed, and
    ``provider_message``, for the owner, if a model's provider said why; ``verdict``
    if the reply was judged, ``execution`` if it was planned. ``asks`` is the consent that the last entry asks for.
    ``needs_consent``: a scheduled turn was refused a call, or its plan ended with a question: its owner is asked.
    ``answered`` is the id of the question that was answered, with yes or no. ``was_shown``: a model was asked.
    ``refused``: the provider rejected what was said in this turn, so later requests leave it out.
    ``skipped``: nothing was to be done, for the reason ``error_text``; nothing is added to the history.
    ``cap``: which one did not allow the next call, if one ended the turn.
    ``model`` is the one that replied last; ``fell_back`` says why it was the fallback, and is empty if it was not.
    """

    ending: Ending
    entries: tuple[Entry, ...] = ()
    error_code: str | None = None
    error_text: str | None = None
    error_detail: str | None = None
    provider_message: str = ""
    usage: Usage = Usage()
    verdict: Verdict | None = None
    execution: Execution | None = None
    asks: ConsentRequest | None = None
    needs_consent: bool = False
    answered: tuple[str, str] | None = None
    was_shown: bool = True
    refused: bool = False
    skipped: bool = False
    cap: Mapping[str, Any] | None = None
    model: str = ""
    fell_back: str = ""

    @property
    def reply(self) -> str:
        """The content of the last assistant entry, or an empty string."""
        return self._last.content if self._last else ""

    @property
    def ended_by(self) -> Ended | None:
        """How the answer of a turn that succeeded ended; None if there is none."""
        return self._last.ended_by if self._last and self.ending is Ending.SUCCEEDED else None

    @property
    def _last(self) -> Entry | None:
        return next((each for each in reversed(self.entries) if each.role is Role.ASSISTANT), None)
