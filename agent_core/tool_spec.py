"""The description of a tool for the model, and the effects of tool calls (rule 3.5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any


class Effect(StrEnum):
    """The effects of a tool call (rule 3.5). A dangerous call needs the person's yes."""

    READ = "read"
    WRITE = "write"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, kw_only=True)
class CallInWords:
    """A call in the server's words, for the person who is asked for consent.

    ``words``: at most a stored name in them is not the server's. ``says_all``: they leave out no argument that matters.
    ``state`` changes with what the call is about, and then a yes given before does not count. ``problem``: why the call
    cannot be made, as a text for the model; then nobody is asked.
    """

    words: str = ""
    says_all: bool = False
    state: str = ""
    problem: str = ""


_NOTHING = CallInWords()


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as it is described to the model. ``parameters`` is a JSON schema of type object.

    ``effect`` is the strongest effect that a call can have; ``effect_of`` returns that of given arguments.
    ``withheld``: the turn must not use the tool, so the model is not told of it. ``asks``: a dangerous call needs a yes
    in this turn. ``source``: the outside server that it calls, if any, with its settings; the model does not see it.
    ``says`` puts a call into words, for this turn.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    idempotent: bool = False
    effect: Effect = Effect.READ
    effect_of: Callable[[dict[str, Any]], Effect] | None = None
    withheld: bool = False
    asks: bool = True
    source: str = field(default="", repr=False)  # an address may contain a secret
    says: Callable[[dict[str, Any]], CallInWords] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def as_text(self) -> str:
        """The tool's description as one text, to count its tokens."""
        return f"{self.name} {self.description} {json.dumps(self.parameters)}"

    def effect_with(self, arguments: dict[str, Any]) -> Effect:
        """Return the effect of a call with these arguments."""
        return self.effect if self.effect_of is None else self.effect_of(arguments)

    def in_words(self, arguments: dict[str, Any]) -> CallInWords:
        """Return a call with these arguments in the server's words; empty if the tool has none."""
        return _NOTHING if self.says is None else self.says(arguments)


def version_of(tools: Iterable[ToolSpec]) -> str:
    """Return a digest of the tools' names, descriptions, parameters, effects and sources (rule 7.5)."""
    rows = sorted(
        (tool.name, tool.description, tool.parameters, str(tool.effect), *filter(None, [tool.source]))
        for tool in tools
    )
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
