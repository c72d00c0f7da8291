"""When a job is due: three kinds of schedule and their slots (rule 4.6).

Pure arithmetic: no database, no clock; `now` is always an argument. Slots are in UTC, on whole milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial
from typing import Any, Literal

from automations.active_days import ActiveDays
from automations.active_hours import ActiveHours, count_within, last_within, next_within
from automations.cron_fields import CronFields, read_expr
from automations.cron_slots import count_cron, last_cron, next_cron
from automations.schedule_errors import ScheduleCode, ScheduleError
from automations.zone_files import load_zone
from automations.zones import as_utc, instant_ahead

__all__ = [
    "ActiveSchedule",
    "AtSchedule",
    "CronSchedule",
    "EndingSchedule",
    "EverySchedule",
    "Schedule",
    "ScheduleCode",
    "ScheduleError",
    "Slots",
    "count_slots",
    "last_slot_until",
    "next_slot",
    "parse_schedule",
    "read_time",
    "schedule_json",
    "whole_milliseconds",
]

HORIZON_YEARS = 8
MAX_EVERY_SECONDS = 10 * 365 * 86_400
_FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)  # earlier slots do not exist
# Nor do later ones; this leaves room for zone arithmetic below the end of the calendar.
_LAST_INSTANT = datetime(9900, 1, 1, tzinfo=UTC)
_AT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]"
    r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_KEYS = {
    "cron": (frozenset({"kind", "expr"}), frozenset({"timezone"})),
    "every": (frozenset({"kind", "seconds"}), frozenset[str]()),
    "at": (frozenset({"kind", "at"}), frozenset[str]()),
}


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
    """One instant, aware. `zone`: that which it was written in, known until it is stored."""

    at: datetime
    zone: tzinfo = field(default=UTC, compare=False)
    kind: Literal["at"] = "at"


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveSchedule:
    """The slots of another schedule that lie within active hours."""

    slots: CronSchedule | EverySchedule | AtSchedule
    hours: ActiveHours


@dataclass(frozen=True, kw_only=True, slots=True)
class EndingSchedule:
    """The slots of another schedule up to `ends_at`, which is aware and may be a slot itself."""

    slots: CronSchedule | EverySchedule | AtSchedule | ActiveSchedule | ActiveDays
    ends_at: datetime


Schedule = CronSchedule | EverySchedule | AtSchedule
Slots = Schedule | ActiveSchedule | ActiveDays | EndingSchedule


def parse_schedule(data: Mapping[str, Any], *, default_timezone: str, now: datetime) -> Schedule:
    """Read the API's JSON, strictly. Raises ScheduleError.

    `default_timezone` (the agent's) is used for a cron without `timezone` and for an `at` without offset. The
    anchor of an `every` is `now`, so its first slot is `seconds` from now.
    """
    kind = _checked_kind(data)
    if kind == "cron":
        return _read_cron(data["expr"], data.get("timezone", default_timezone), as_utc(now))
    if kind == "every":
        return _read_every(data["seconds"], as_utc(now))
    return _read_at(data["at"], default_timezone, as_utc(now))


def _checked_kind(data: object) -> str:
    """The kind of a mapping that has all keys of its kind and no other."""
    if not isinstance(data, Mapping):
        raise ScheduleError("bad_schedule", "A schedule is an object with a `kind`.")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ScheduleError("bad_schedule", "The `kind` of a schedule is `cron`, `every` or `at`.")
    needed, optional = _KEYS[kind]
    missing = sorted(needed - data.keys())
    if missing:
        raise ScheduleError("bad_schedule", f"A schedule of kind `{kind}` needs `{missing[0]}`.")
    unknown = sorted(str(key)[:40] for key in data.keys() - needed - optional)
    if unknown:
        raise ScheduleError("bad_schedule", f"A schedule of kind `{kind}` has no key `{unknown[0]}`.")
    return kind


def _read_cron(expr: object, timezone: object, now: datetime) -> CronSchedule:
    if not isinstance(timezone, str):
        raise ScheduleError("unknown_timezone", "The time zone must be a name such as `Europe/Berlin`.")
    load_zone(timezone)
    read_expr(expr)
    schedule = CronSchedule(expr=" ".join(str(expr).split()), timezone=timezone)
    first = next_slot(schedule, now)
    if first is None or first > _years_after(now, HORIZON_YEARS):
        message = f"The expression {schedule.expr!r} does not fire within {HORIZON_YEARS} years."
        raise ScheduleError("never_fires", message)
    return schedule


def _years_after(instant: datetime, years: int) -> datetime:
    """The same day and time some years later; 1 March for a 29 February that is missing."""
    try:
        return instant.replace(year=instant.year + years)
    except ValueError:
        return instant.replace(year=instant.year + years, month=3, day=1)


def _read_every(seconds: object, now: datetime) -> EverySchedule:
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise ScheduleError("bad_interval", "The interval must be a whole number of seconds.")
    if not 1 <= seconds <= MAX_EVERY_SECONDS:
        message = f"The interval must be from 1 to {MAX_EVERY_SECONDS} seconds (10 years)."
        raise ScheduleError("bad_interval", message)
    return EverySchedule(seconds=seconds, anchor=whole_milliseconds(now))


def _read_at(text: object, default_timezone: str, now: datetime) -> AtSchedule:
    at, zone = read_time(text, default_timezone, now, name="at")
    return AtSchedule(at=at, zone=zone)


def read_time(text: object, default_timezone: str, now: datetime, *, name: str) -> tuple[datetime, tzinfo]:
    """An ISO time that lies ahead, in UTC, and the zone it was written in: the default one when it has no offset.

    ScheduleError, which says `name`.
    """
    if not isinstance(text, str) or not _AT.fullmatch(text):
        raise ScheduleError("bad_time", f"`{name}` must be a time such as `2027-01-01T09:00:00+01:00`.")
    try:
        given = datetime.fromisoformat(text.upper())
        zone = given.tzinfo or load_zone(default_timezone)
        at = as_utc(given) if given.tzinfo else instant_ahead(load_zone(default_timezone), given, now)
    except ScheduleError:
        raise
    except (ValueError, OverflowError):
        raise ScheduleError("bad_time", f"There is no time {text!r}.") from None
    at = whole_milliseconds(at)
    if at <= now:
        raise ScheduleError("past_at", f"The time {text!r} has passed.")
    if at > _LAST_INSTANT:
        raise ScheduleError("bad_time", f"The time {text!r} is too far away.")
    return at, zone


def schedule_json(schedule: Schedule, *, zone: str = "UTC") -> dict[str, Any]:
    """The API's JSON of a schedule; `at` is written with the offset of `zone` (the agent's)."""
    if isinstance(schedule, CronSchedule):
        return {"kind": "cron", "expr": schedule.expr, "timezone": schedule.timezone}
    if isinstance(schedule, EverySchedule):
        return {"kind": "every", "seconds": schedule.seconds}
    return {"kind": "at", "at": schedule.at.astimezone(load_zone(zone)).isoformat()}


def whole_milliseconds(instant: datetime) -> datetime:
    """The instant in UTC, cut to whole milliseconds, as slots and run ids have it."""
    utc = as_utc(instant)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


@lru_cache(maxsize=4096)
def cron_fields(expr: str) -> CronFields:
    """The fields of an expression, read once. Raises ScheduleError."""
    return CronFields(expr)


def next_slot(schedule: Slots, after: datetime) -> datetime | None:
    """The first slot later than `after` (UTC, whole milliseconds), or None: there is none any more.

    Raises ScheduleError if a stored schedule has become unusable (a zone that is gone).
    """
    if isinstance(schedule, EndingSchedule):
        slot = next_slot(schedule.slots, after)
        return slot if slot is not None and slot <= schedule.ends_at else None
    if isinstance(schedule, ActiveSchedule):
        return next_within(schedule.hours, partial(next_slot, schedule.slots), after)
    if isinstance(schedule, ActiveDays):
        return schedule.next(after)
    after = max(as_utc(after), _FIRST_INSTANT)
    if after >= _LAST_INSTANT:
        return None
    if isinstance(schedule, CronSchedule):
        slot = next_cron(cron_fields(schedule.expr), load_zone(schedule.timezone), after)
    elif isinstance(schedule, EverySchedule):
        slot = _grid(schedule, max(0, _periods(schedule, after) + 1))
    else:
        at = whole_milliseconds(schedule.at)
        slot = at if at > after else None
    return slot if slot is not None and slot <= _LAST_INSTANT else None


def last_slot_until(schedule: Slots, after: datetime, until: datetime) -> datetime | None:
    """The latest slot s with after < s <= until, or None. Its cost does not grow with the number of slots."""
    if isinstance(schedule, EndingSchedule):
        return last_slot_until(schedule.slots, after, min(until, schedule.ends_at))
    if isinstance(schedule, ActiveSchedule):
        return last_within(schedule.hours, partial(last_slot_until, schedule.slots), after, until)
    if isinstance(schedule, ActiveDays):
        return schedule.last(after, until)
    after, until = _bounded(after, until)
    if after >= until:
        return None
    if isinstance(schedule, CronSchedule):
        return last_cron(cron_fields(schedule.expr), load_zone(schedule.timezone), after, until)
    if isinstance(schedule, EverySchedule):
        periods = _periods(schedule, until)
        slot = _grid(schedule, periods) if periods >= 0 else None
    else:
        slot = whole_milliseconds(schedule.at)
    return slot if slot is not None and after < slot <= until else None


def count_slots(schedule: Slots, after: datetime, until: datetime, limit: int = 1000) -> int | None:
    """How many slots s have after < s <= until; None when there are more than `limit`."""
    if isinstance(schedule, EndingSchedule):
        return count_slots(schedule.slots, after, min(until, schedule.ends_at), limit)
    if isinstance(schedule, ActiveSchedule):
        return count_within(partial(next_slot, schedule), after, until, limit)
    if isinstance(schedule, ActiveDays):
        return count_within(schedule.next, after, until, limit)
    after, until = _bounded(after, until)
    if after >= until:
        return 0
    if isinstance(schedule, CronSchedule):
        count = count_cron(cron_fields(schedule.expr), load_zone(schedule.timezone), after, until, limit)
    elif isinstance(schedule, EverySchedule):
        count = max(0, _periods(schedule, until) + 1) - max(0, _periods(schedule, after) + 1)
    else:
        count = int(after < whole_milliseconds(schedule.at) <= until)
    return count if count <= limit else None


def _bounded(after: datetime, until: datetime) -> tuple[datetime, datetime]:
    return max(as_utc(after), _FIRST_INSTANT), min(as_utc(until), _LAST_INSTANT)


def _periods(schedule: EverySchedule, instant: datetime) -> int:
    """How many whole periods lie between the anchor and the instant; negative before the anchor."""
    return (instant - whole_milliseconds(schedule.anchor)) // timedelta(seconds=schedule.seconds)


def _grid(schedule: EverySchedule, periods: int) -> datetime | None:
    try:
        return whole_milliseconds(schedule.anchor) + periods * timedelta(seconds=schedule.seconds)
    except OverflowError:
        return None
