"""What an MCP server says of its tools, before anything of it is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One tool in the server's own words; the three flags are its hints."""

    name: str
    description: str
    parameters: Any
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """A server's tools, and how it speaks."""

    tools: tuple[Listed, ...]
    mode: str
