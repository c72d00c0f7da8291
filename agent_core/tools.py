"""The registry of tools. Higher layers register theirs here when they start."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_core.exceptions import ToolError, ToolFailed, UnknownTool
from agent_core.types import JSON, Effect, ToolSpec

__all__ = ["Effect", "Tool", "ToolFailed", "all", "get", "register", "unregister"]

SEPARATOR = (
    "__"  # between an MCP server's name and its tool's; no tool of ours has it, so none can be shadowed
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _always(_context: Any) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool.

    ``parameters`` is a JSON schema of type object. ``run(context, arguments)`` returns the text for
    the model, or raises ToolFailed with one. ``idempotent``: a repeated call does no harm, so an
    interrupted one is made again. ``transactional``: its effect and its result are written in one
    transaction of our own database. ``offered(context)`` says whether a turn is told of it.
    """

    name: str
    description: str
    parameters: JSON
    run: Callable[[Any, JSON], str]
    effect: Effect = Effect.READ
    idempotent: bool = False
    transactional: bool = False
    offered: Callable[[Any], bool] = _always

    def spec(self) -> ToolSpec:
        """Return what the model is told."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            # without a journaled result a transaction of our own did not take place: it may run again
            idempotent=self.idempotent or self.transactional,
            effect=self.effect,
        )


_TOOLS: dict[str, Tool] = {}


def register(tool: Tool) -> Tool:
    """Make a tool known. The same one twice is fine; another one of its name is a ToolError."""
    if not _NAME.fullmatch(tool.name) or SEPARATOR in tool.name:
        raise ToolError(f"Bad tool name {tool.name!r}: letters, digits, - and single _ only, up to 64.")
    if tool.parameters.get("type") != "object":
        raise ToolError(f"The parameters of {tool.name} must be a JSON schema of type object.")
    if _TOOLS.setdefault(tool.name, tool) != tool:
        raise ToolError(f"There is another tool named {tool.name}.")
    return tool


def unregister(name: str) -> None:
    """Forget a tool, if it is known."""
    _TOOLS.pop(name, None)


def get(name: str) -> Tool:
    """Return the tool of this name; UnknownTool if there is none."""
    try:
        return _TOOLS[name]
    except KeyError:
        raise UnknownTool(f"There is no tool named {name!r}.") from None


def all() -> tuple[Tool, ...]:  # noqa: A001 - read as tools.all()
    """Return every tool, by name: the same order each time keeps a model's prompt cache warm."""
    return tuple(_TOOLS[name] for name in sorted(_TOOLS))
