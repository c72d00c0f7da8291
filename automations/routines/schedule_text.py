"""Schedules of routines as text: `30m`, `1h`, `2d`, five cron fields, or an instant (rule 6.5)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from automations.models import CronJob, ScheduleKind
from automations.schedules.plan import schedule_of
from automations.schedules.schedule import (
    AtSchedule,
    EverySchedule,
    Schedule,
    ScheduleError,
    parse_schedule,
    read_time,
)

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # the `now` for reading an instant that may have passed
_INTERVAL = re.compile(r"([0-9]{1,9})([smhd])")


def read_routine_schedule(text: Any, *, timezone: str, now: datetime) -> Schedule:
    """Read an interval, or five cron fields in this zone. ScheduleError."""
    if not isinstance(text, str) or not text.strip():
        raise ScheduleError(
            "bad_schedule", "A schedule is an interval such as `30m`, `1h` or `2d`, or five cron fields."
        )
    found = _INTERVAL.fullmatch(text.strip())
    if found:
        given: dict[str, Any] = {"kind": "every", "seconds": int(found[1]) * UNITS[found[2]]}
    elif " " not in text.strip():
        raise ScheduleError(
            "bad_schedule", f"{text[:60]!r} is neither an interval such as `30m` nor five cron fields."
        )
    else:
        given = {"kind": "cron", "expr": text.strip(), "timezone": timezone}
    return parse_schedule(given, default_timezone=timezone, now=now)


def read_first_run(text: Any, *, timezone: str, now: datetime) -> datetime:
    """Read a future ISO time; without an offset it is in this zone. ScheduleError."""
    return read_time(text, timezone, now, name="next_run_at")[0]


def with_anchor(schedule: Schedule, first: datetime | None) -> Schedule:
    """The same schedule; an interval starts at `first`, when that is given."""
    if isinstance(schedule, EverySchedule) and first is not None:
        return EverySchedule(seconds=schedule.seconds, anchor=first)
    return schedule


def routine_schedule_text(job: CronJob) -> str | None:
    """A routine's schedule as text, in the form that is accepted as input; None for a one-time routine."""
    if job.schedule_kind == ScheduleKind.AT:
        return None
    if job.schedule_kind == ScheduleKind.CRON:
        return job.expr
    return interval_text(job.every_seconds or 0)


def interval_text(seconds: int) -> str:
    """`90m` rather than `5400s`: in the largest whole unit."""
    unit = next(unit for unit, size in reversed(UNITS.items()) if seconds % size == 0)
    return f"{seconds // UNITS[unit]}{unit}"


def same_schedule(job: CronJob, schedule: Schedule, now: datetime) -> bool:
    """Whether a routine has this schedule. Two times that have passed are equal: both run at once."""
    try:
        stored = schedule_of(job)
    except ScheduleError:
        return False
    if isinstance(stored, EverySchedule) and isinstance(schedule, EverySchedule):
        return stored.seconds == schedule.seconds
    if isinstance(stored, AtSchedule) and isinstance(schedule, AtSchedule):
        return max(stored.at, now) == max(schedule.at, now)
    return stored == schedule
