"""When a job is due: three kinds of schedule and their slots (rule 4.6). Pure arithmetic, `now` is always given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from .schedule_errors import ScheduleCode, ScheduleError

__all__ = [
    "AtSchedule",
    "CronSchedule",
    "EverySchedule",
    "Schedule",
    "ScheduleCode",
    "ScheduleError",
    "count_slots",
    "first_slot",
    "last_slot_until",
    "next_slot",
    "parse_schedule",
    "schedule_json",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class CronSchedule:
    """Five cron fields on the wall time of `timezone` (an IANA name)."""

    expr: str
    timezone: str
    kind: Literal["cron"] = "cron"


@dataclass(frozen=True, kw_only=True, slots=True)
class EverySchedule:
    """Elapsed time: `anchor`, `anchor` + `seconds`, … `anchor` is aware; the grid begins there."""

    seconds: int
    anchor: datetime
    kind: Literal["every"] = "every"


@dataclass(frozen=True, kw_only=True, slots=True)
class AtSchedule:
    """One instant, aware."""

    at: datetime
    kind: Literal["at"] = "at"


Schedule = CronSchedule | EverySchedule | AtSchedule


def parse_schedule(data: Mapping[str, Any], *, default_timezone: str, now: datetime) -> Schedule:
    """Read the API's JSON. Raises ScheduleError. `anchor` of an `every` is `now`."""
    raise NotImplementedError


def schedule_json(schedule: Schedule, *, zone: str = "UTC") -> dict[str, Any]:
    """The API's JSON of a schedule; `at` is written with the offset of `zone`."""
    raise NotImplementedError


def next_slot(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot later than `after` (UTC, whole milliseconds), or None: there is none any more."""
    raise NotImplementedError


def first_slot(schedule: Schedule, *, after: datetime) -> datetime | None:
    """The first slot of a schedule saved at `after`."""
    return next_slot(schedule, after)


def last_slot_until(schedule: Schedule, after: datetime, until: datetime) -> datetime | None:
    """The latest slot s with after < s <= until, or None."""
    raise NotImplementedError


def count_slots(schedule: Schedule, after: datetime, until: datetime, limit: int = 1000) -> int | None:
    """How many slots s have after < s <= until; None when there are more than `limit`."""
    raise NotImplementedError
