"""The tool `current_time`.

The prompt does not contain the time, so that providers can cache it. A model that needs the time calls this tool, for
example to schedule something for "tomorrow at nine".
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from sessions_app.turns.tool_calls import ToolContext

NAME = "current_time"
HINT = f"Ask {NAME} first if you do not know what time it is."  # for the tools that take a time


def current_time(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Return date, weekday and time with its offset, in the agent's zone. ToolFailed for any argument."""
    if arguments:
        raise ToolFailed(f"unknown parameter {min(arguments)!r}; the tool has no parameters")
    here = datetime.now(context.agent.zone)
    shown = {
        "date": here.date().isoformat(),
        "weekday": here.strftime("%A"),
        "time": here.isoformat(timespec="seconds"),
        "timezone": str(here.tzinfo),
    }
    return json.dumps(shown)


def register_clock_tool() -> None:
    """Register the tool."""
    tools.register(
        Tool(
            name=NAME,
            description="Tells what day and time it is now, in your time zone.",
            parameters={"type": "object", "properties": {}},
            effect=Effect.READ,
            idempotent=True,
            run=current_time,
        )
    )
