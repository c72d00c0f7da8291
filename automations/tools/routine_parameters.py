"""The parameters of the tools for routines."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, dict[str, Any]] = {
    "title": {"type": "string", "description": "a short title"},
    "description": {"type": "string", "description": "what is to be done, with all that is needed to do it"},
    "instructions": {
        "type": "string",
        "description": "standing instructions of its own: how it is to be done, in which language or form",
    },
    "schedule": {
        "type": "string",
        "description": "an interval such as '30m', '1h', '2d', or five cron fields such as '0 9 * * *'",
    },
    "next_run_at": {
        "type": "string",
        "description": "ISO time of the first run; without a schedule of the only one. Without offset: in the zone",
    },
    "execution_mode": {
        "type": "string",
        "enum": ["inline", "isolated"],
        "description": "inline: light, within a heartbeat; isolated: by itself, with tools and several steps",
    },
    "timezone": {"type": "string", "description": "an IANA zone; default: the agent's"},
    "timeout_seconds": {"type": "integer", "description": "how long one run may take"},
    "task_type": {  # no enum: some providers refuse one with an empty text, which takes it back
        "type": "string",
        "description": "time_reminder: only tells the time; else empty",
    },
}
ADDED = {
    "allow_duplicate": {
        "type": "boolean",
        "description": "add it although one of the same title and schedule is there",
    },
    "memory_line": {
        "type": "integer",
        "description": "the line of MEMORY.md, marked [to be registered], which this routine is for",
    },
    "memory_revision": {"type": "integer", "description": "with memory_line: the revision of MEMORY.md"},
}
REFUSED = frozenset({"allow_duplicate"})  # in a heartbeat
REFLECTS = (
    "Routines: registers work or a reminder that the agent does by itself in the background, once or repeatedly,"
    " without the words of any conversation; the person is told of it, and of what comes of it. It does not run before"
    " this heartbeat has ended; without schedule and next_run_at it is done once, right after it."
)
ROUTINE_ID = {"routine_id": {"type": "string", "description": "the id that list_routines shows"}}
