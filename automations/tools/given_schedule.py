"""A schedule as models and programs give it: one parameter for each kind, and those that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from automations.exceptions import BadJob
from automations.models import ScheduleKind
from automations.models.job import ON_WALL_TIME

SCHEDULES = {
    "every_seconds": (ScheduleKind.EVERY, "seconds"),
    "cron_expr": (ScheduleKind.CRON, "expr"),
    "rrule": (ScheduleKind.RRULE, "rule"),
    "at": (ScheduleKind.AT, "at"),
}
ON_WALL = {"tz": "timezone", "except_dates": "except", "except_holidays": "except_holidays"}
PARTS = (*SCHEDULES, "starts_at", *ON_WALL)  # the parameters of a schedule


def given_schedule(arguments: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The API's JSON. Empty parameters count as not given. BadJob.

    `stored`: the schedule that is changed, if only what goes with it is given.
    """
    given = {name: arguments[name] for name in PARTS if arguments.get(name) not in (None, "", [])}
    kinds = [name for name in SCHEDULES if name in given]
    if not kinds and stored and stored["kind"] in ON_WALL_TIME and "starts_at" not in given:
        return {**stored, **{key: given[name] for name, key in ON_WALL.items() if name in given}}
    if len(kinds) != 1:
        got = f"; got {', '.join(kinds)}" if kinds else ""
        raise _bad(f"give exactly one of {', '.join(SCHEDULES)}{got}")
    kind, key = SCHEDULES[kinds[0]]
    misplaced = [name for name in ON_WALL if name in given and kind not in ON_WALL_TIME]
    if misplaced:
        raise _bad(
            f"{misplaced[0]} can only be given with cron_expr or rrule; give at with an offset instead of tz"
        )
    if ("starts_at" in given) != (kind == ScheduleKind.RRULE):
        raise _bad("rrule needs starts_at, and nothing else takes it")
    value = given[kinds[0]]
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON Schema calls 5.0 an integer
    start = {"starts_at": given["starts_at"]} if "starts_at" in given else {}
    more = {key: given[name] for name, key in ON_WALL.items() if name in given}
    return {"kind": kind, key: value.strip() if isinstance(value, str) else value, **start, **more}


def _bad(text: str) -> BadJob:
    return BadJob(text, code="bad_schedule")
