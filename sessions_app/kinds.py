"""The kinds of turns: what each adds to the one flow. Apps above register theirs when they start.

A kind never runs a turn; it answers six questions that the flow asks, each but `to_judge` inside the
transaction of the step that asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from agent_core.planner.decide import is_clear
from agent_core.types import Ending, ToolCall, TurnResult
from sessions_app import memory
from sessions_app.models import Turn, TurnKind

NO_LIMITS: Mapping[str, Any] = MappingProxyType({})  # of its own


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A turn's input: what people read in the history and what the model is shown, this once.

    `metadata` goes to the stored message, `source` and `route` to the answer's metadata. With an empty `content`
    nobody said anything: no input is stored, and `metadata` goes to the answer, too.
    """

    content: str
    model_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] | None = None
    route: dict[str, Any] | None = None
    template: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The journal's form; from_json reads it back word for word."""
        return {
            "content": self.content,
            "model_content": self.model_content,
            "metadata": self.metadata,
            "source": self.source,
            "route": self.route,
            "template": self.template,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trigger:
        """Read what `to_json` wrote."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


class Kind(Protocol):
    """What a kind of turn adds to the flow."""

    name: TurnKind
    drains_mailbox: bool
    interactive: bool  # a person waits: may be injected into, may create automations
    replays_model_content: bool  # later turns see what the model saw, not what people see
    policy: Mapping[str, Any]  # its limits, where they are not everybody's; the agent's are stronger
    alone: bool  # the model is given the trigger alone: no history, no tools
    plans: bool  # an agent that plans makes a plan for it
    hands_over: bool  # its answer leaves by its route; else the kind sees to that itself

    def started(self, turn: Turn) -> None:
        """The turn was claimed; same transaction."""

    def trigger(self, turn: Turn) -> Trigger:
        """What the turn begins with. Reads only."""

    def shown(self, turn: Turn, trigger: Trigger) -> None:
        """The trigger is about to be shown to the model; the transaction of the journal's first step."""

    def refused(self, turn: Turn, call: ToolCall) -> None:
        """A call was refused for want of a person's consent; the transaction of its journaled result."""

    def said(self, turn: Turn) -> str | None:
        """What the turn says without any model; None: the model is asked."""

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """The task against which the reply is judged before it is committed; None: it goes unjudged."""

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The turn ended; the transaction of its commit. `closure` is the last text people see.

        Raises Unkept when a success cannot be kept.
        """


class Unkept(Exception):
    """What a turn gave cannot be kept: the turn fails with this code and text, and nothing of it is stored."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


CLOSURES = {
    Ending.SUCCEEDED: "Finished with no output.",
    Ending.FAILED: "This did not work: {error}",
    Ending.CANCELLED: "Stopped.",
}


CLEARED = "The conversation begins anew. Your preferences, documents and appointments stay."


def closure_text(result: TurnResult) -> str:
    """The line that closes a turn which has no answer to show; empty when it has one."""
    if result.ending is Ending.SUCCEEDED and result.reply.strip():
        return ""
    return CLOSURES[result.ending].format(error=result.error_text or "an internal error.")


def is_persons(turn: Turn) -> bool:
    """Whether a person said it; only then is it a reply, a confirmation, a retry, a command or consent (rule 7.3).

    What another system posted by a hook says of itself which it is.
    """
    via = turn.metadata.get("message", {}).get("via")
    return turn.kind == TurnKind.MESSAGE and (via is None or via.get("as_person", False))


class MessageKind:
    """A message: a person's, or another system's by a hook."""

    name = TurnKind.MESSAGE
    drains_mailbox = True
    interactive = True
    replays_model_content = True
    policy: Mapping[str, Any] = NO_LIMITS
    alone = False
    plans = True
    hands_over = True

    def started(self, turn: Turn) -> None:
        """Nothing to note."""

    def trigger(self, turn: Turn) -> Trigger:
        """The message itself; a person is answered where they wrote."""
        return Trigger(
            content=turn.content,
            model_content=turn.content,
            metadata=turn.metadata.get("message", {}),
            route=turn.metadata.get("route"),
        )

    def shown(self, turn: Turn, trigger: Trigger) -> None:
        """Nothing to note."""

    def refused(self, turn: Turn, call: ToolCall) -> None:
        """The model asks the person, who is there."""

    def said(self, turn: Turn) -> str | None:
        """Who writes talks with the model, but for a person's one command."""
        return CLEARED if _clears(turn) else None

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """A person who asked is told."""

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:  # noqa: ARG002 - every kind is asked alike
        """After `/clear` the conversation begins anew."""
        if result.ending is Ending.SUCCEEDED and _clears(turn):
            memory.clear(turn.session_id)


def _clears(turn: Turn) -> bool:
    return is_persons(turn) and is_clear(turn.content)


_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a kind of turn known."""
    _KINDS[kind.name] = kind


def registered() -> frozenset[str]:
    """The names of the kinds there are."""
    return frozenset(_KINDS)


def kind_of(turn: Turn) -> Kind:
    """The kind of a turn."""
    return _KINDS[turn.kind]


register(MessageKind())
