"""Tools that a model may call. Higher layers and plugins register theirs when they start."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent_core.exceptions import ToolError, UnknownTool
from agent_core.tool_spec import CallInWords, Effect, ToolSpec
from agent_core.types import JSON

__all__ = ["SEPARATOR", "CallInWords", "Effect", "Tool", "all", "get", "register", "unregister"]

SEPARATOR = "__"  # between the names of an MCP server and its tool; names of registered tools lack it
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool.

    ``parameters`` is a JSON schema of type object. ``run(context, arguments)`` returns the text for the model, or
    raises ToolFailed with one. ``idempotent``: a repeated call does no harm, so an interrupted one is made again.
    ``transactional``: effect and result are written in one transaction of our database. ``offered(context)`` says
    whether a turn offers the tool to the model; ``told(context, spec)`` returns its description for a turn that can use
    only a part of it. ``says(context, arguments)`` puts a call into words, for the person who is asked for consent.

    ``effect`` is the strongest effect that a call can have, by default dangerous; ``effect_of`` returns that of given
    arguments. ``foreign``: the output is text from outside, after which writes need consent (rule 3.5). ``source`` is
    the outside server that it calls, if any; a tool with the same name and another source is another tool.
    """

    name: str
    description: str
    parameters: JSON
    run: Callable[[Any, JSON], str]
    effect: Effect = Effect.DANGEROUS
    effect_of: Callable[[JSON], Effect] | None = None
    foreign: bool = False
    source: str = field(default="", repr=False)
    idempotent: bool = False
    transactional: bool = False
    offered: Callable[[Any], bool] = lambda _context: True
    told: Callable[[Any, ToolSpec], ToolSpec] | None = None
    says: Callable[[Any, JSON], CallInWords] | None = None

    def spec(self, context: Any = None) -> ToolSpec:
        """Return the description for the model. With the context of a turn, it can put calls into words."""
        return ToolSpec(
            name=self.name,
            description=self.description.strip(),
            parameters=self.parameters,
            # a transactional call without a journaled result was rolled back, so it may be repeated
            idempotent=self.idempotent or self.transactional,
            effect=self.effect,
            effect_of=self.effect_of,
            source=self.source,
            says=None if self.says is None or context is None else partial(self.says, context),
        )

    def spec_for(self, context: Any) -> ToolSpec:
        """Return the description for the model in a turn, without what the turn always refuses."""
        spec = self.spec(context)
        return spec if self.told is None else self.told(context, spec)


_TOOLS: dict[str, Tool] = {}


def register(tool: Tool) -> Tool:
    """Register a tool, and return it. Raises ToolError if it is invalid or another tool has its name."""
    if not _NAME.fullmatch(tool.name) or SEPARATOR in tool.name:
        raise ToolError(
            f"Bad tool name {tool.name!r}; use up to 64 letters, digits, dashes and single underscores."
        )
    if tool.parameters.get("type") != "object":
        raise ToolError(f"The parameters of {tool.name} must be a JSON schema of type object.")
    if _TOOLS.setdefault(tool.name, tool) != tool:
        raise ToolError(f"Another tool is already named {tool.name!r}.")
    return tool


def unregister(name: str) -> None:
    """Remove a tool, if it is registered."""
    _TOOLS.pop(name, None)


def get(name: str) -> Tool:
    """Return the tool of this name. Raises UnknownTool."""
    try:
        return _TOOLS[name]
    except KeyError:
        raise UnknownTool(f"There is no tool named {name!r}.") from None


def all() -> tuple[Tool, ...]:  # noqa: A001 - read as tools.all()
    """Return all tools sorted by name, because a stable order keeps a model's prompt cache warm."""
    return tuple(_TOOLS[name] for name in sorted(_TOOLS))
