"""The tool `current_time`: a model has no clock, and its prompt names no time, so that it stays the same bytes.

What is asked for "tomorrow at nine" begins with it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from sessions_app.tools import ToolContext

NAME = "current_time"
HINT = f"Ask {NAME} first if you do not know what time it is."  # for the tools that take a time


def now(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Date, weekday and time with its offset, in the agent's zone."""
    if arguments:
        raise ToolFailed(f"{min(arguments)!r} is not known; there are no parameters")
    zone = _zone(context.agent.timezone)
    here = datetime.now(UTC).astimezone(zone)
    shown = {
        "date": here.date().isoformat(),
        "weekday": here.strftime("%A"),
        "time": here.isoformat(timespec="seconds"),
        "timezone": zone.key,
    }
    return json.dumps(shown)


def _zone(name: str) -> ZoneInfo:
    """The agent's zone; UTC, and named so, when its data are gone from this machine."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def register() -> None:
    """Make the tool known."""
    tools.register(
        Tool(
            name=NAME,
            description="Tells what day and time it is now, in your time zone.",
            parameters={"type": "object", "properties": {}},
            effect=Effect.READ,
            idempotent=True,
            run=now,
        )
    )
