"""The version of a tool catalogue: a plan is made for one, and made anew when it changed (rule 7.5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from agent_core.types import ToolSpec


def version_of(tools: Iterable[ToolSpec]) -> str:
    """A short digest of names, descriptions, parameters and effects."""
    rows = sorted((tool.name, tool.description, tool.parameters, str(tool.effect)) for tool in tools)
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
