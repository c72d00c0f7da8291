"""Tools that a model may call. Plugins import these names from here."""

from __future__ import annotations

from agent_core.tool_spec import Effect
from agent_core.tools.registry import SEPARATOR, Tool, all, get, register, unregister  # noqa: A004 - tools.all()

__all__ = ["SEPARATOR", "Effect", "Tool", "all", "get", "register", "unregister"]
