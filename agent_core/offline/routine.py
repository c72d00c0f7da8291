"""Reads requests for background routines for the offline model, as arguments of the tool add_routine."""

from __future__ import annotations

import re
from typing import Any

from agent_core.offline import schedule

_BEGINNING = re.compile(
    r"^(?:please |can you |could you )?"
    r"(?:(?P<isolated>in the background)|with (?:your|the|its|a) (?:next )?heartbeat)"
    r"(?:, as an? (?:isolated |inline )?routine)?[:,]? (?P<rest>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_LONGEST_TITLE = 60  # characters
_NAMES = {
    "cron_expr": "schedule",
    "tz": "timezone",
    "at": "next_run_at",
}  # names in cron: names in add_routine


def read_routine(text: str) -> dict[str, Any] | str | None:
    """Return arguments for add_routine, or a text that says why not, or None if the text asks for no routine.

    Without a schedule (see ``schedule.py``) the routine runs once, at once.
    """
    match = _BEGINNING.match(" ".join(text.split()))
    if not match:
        return None
    given = schedule.read_schedule(match["rest"])
    if isinstance(given, str):
        return given
    when = given or {}
    what = (when.get("message") or match["rest"]).strip(" .")
    arguments: dict[str, Any] = {
        "title": what if len(what) <= _LONGEST_TITLE else what[: _LONGEST_TITLE - 1] + "…",
        "description": what,
        "execution_mode": "isolated" if match["isolated"] else "inline",
    }
    if "every_seconds" in when:
        arguments["schedule"] = f"{when['every_seconds']}s"
    return arguments | {ours: when[theirs] for theirs, ours in _NAMES.items() if theirs in when}
