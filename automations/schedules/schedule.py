"""The three kinds of schedule and their slots (rule 4.6).

Pure arithmetic without database or clock; `now` is always an argument. Slots are in UTC, on whole milliseconds.

Where a new kind goes:

* here: a class beside the three, its keys in `_KEYS`, its reader in `parse_schedule`;
* `automations/models/job.py`: a member of `ScheduleKind`, columns, and the CHECK, with a migration;
* `plan.py`: the columns are read by `schedule_of`; `describe.py`: if clock changes concern it;
* every other place that differs by kind names `ScheduleKind` or a class of a schedule:
  `git grep -E 'ScheduleKind|(Cron|Every|At)Schedule'` finds the agents' tool, routines, API, form, admin, command,
  import and the walk for time zones. `git grep every_seconds` finds the rules for intervals, and the arguments of the
  MCP server.
"""

# ruff: noqa: ARG002 -- all kinds have the same signatures

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Literal

from automations.exceptions import ScheduleError
from automations.schedules.cron_fields import CronFields, read_expr
from automations.schedules.cron_slots import count_cron, last_cron, next_cron
from automations.schedules.cron_words import cron_words
from automations.schedules.wall_time import as_utc, instant_ahead
from automations.schedules.zone_files import load_zone

HORIZON_YEARS = 8
MAX_EVERY_SECONDS = 10 * 365 * 86_400
_FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)  # earlier slots do not exist
# Nor do later ones; this leaves room for zone arithmetic below the end of the calendar.
_LAST_INSTANT = datetime(9900, 1, 1, tzinfo=UTC)
_AT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]"
    r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"  # nanoseconds are cut
    r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_KEYS = {
    "cron": (frozenset({"kind", "expr"}), frozenset({"timezone"})),
    "every": (frozenset({"kind", "seconds"}), frozenset[str]()),
    "at": (frozenset({"kind", "at"}), frozenset[str]()),
}


class _Bounded:
    """Base of the three kinds: no slot lies before the first instant or after the last one.

    Each kind implements `_next`, `_last` and `_count` for instants within these bounds.
    """

    __slots__ = ()

    def next(self, after: datetime) -> datetime | None:
        """The first slot later than `after`; None when there is none."""
        after = max(as_utc(after), _FIRST_INSTANT)
        slot = self._next(after) if after < _LAST_INSTANT else None
        return slot if slot is not None and slot <= _LAST_INSTANT else None

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """The latest slot s with after < s <= until, or None. Its cost does not grow with the number of slots."""
        after, until = max(as_utc(after), _FIRST_INSTANT), min(as_utc(until), _LAST_INSTANT)
        slot = self._last(after, until) if after < until else None
        return slot if slot is not None and after < slot <= until else None

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """How many slots s have after < s <= until; None when there are more than `limit`."""
        after, until = max(as_utc(after), _FIRST_INSTANT), min(as_utc(until), _LAST_INSTANT)
        count = self._count(after, until, limit) if after < until else 0
        return count if count <= limit else None

    def _next(self, after: datetime) -> datetime | None:
        raise NotImplementedError

    def _last(self, after: datetime, until: datetime) -> datetime | None:
        raise NotImplementedError

    def _count(self, after: datetime, until: datetime, limit: int) -> int:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class CronSchedule(_Bounded):
    """Five cron fields on the wall time of `timezone` (an IANA name)."""

    expr: str
    timezone: str
    kind: Literal["cron"] = "cron"

    def to_json(self, *, zone: str = "UTC") -> dict[str, Any]:
        """The API's JSON, with the schedule's own zone."""
        return {"kind": "cron", "expr": self.expr, "timezone": self.timezone}

    def in_words(self, zone: str | None = None) -> str:
        """`every day at 09:00 (Asia/Shanghai)`, in the schedule's own zone."""
        words = cron_words(self.expr) or f"cron `{self.expr}`"
        return f"{words} ({self.timezone})"

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a job's columns, without those that are empty."""
        return {"expr": self.expr, "timezone": self.timezone}

    def _next(self, after: datetime) -> datetime | None:
        return next_cron(cron_fields(self.expr), load_zone(self.timezone), after)

    def _last(self, after: datetime, until: datetime) -> datetime | None:
        return last_cron(cron_fields(self.expr), load_zone(self.timezone), after, until)

    def _count(self, after: datetime, until: datetime, limit: int) -> int:
        return count_cron(cron_fields(self.expr), load_zone(self.timezone), after, until, limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class EverySchedule(_Bounded):
    """A fixed interval: slots at `anchor`, `anchor` + `seconds`, … `anchor` is aware."""

    seconds: int
    anchor: datetime
    kind: Literal["every"] = "every"

    def to_json(self, *, zone: str = "UTC") -> dict[str, Any]:
        """The API's JSON, without the anchor."""
        return {"kind": "every", "seconds": self.seconds}

    def in_words(self, zone: str | None = None) -> str:
        """`every 90 minutes`: the largest whole unit. One day is 24 hours, whatever the clocks do."""
        if self.seconds == 86_400:
            return "every 24 hours"
        size, unit = next((size, unit) for size, unit in _UNITS if self.seconds % size == 0)
        count = self.seconds // size
        return f"every {unit}" if count == 1 else f"every {count} {unit}s"

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a job's columns, without those that are empty."""
        return {"every_seconds": self.seconds, "anchor": self.anchor}

    def _next(self, after: datetime) -> datetime | None:
        return self._slot(max(0, self._periods(after) + 1))

    def _last(self, after: datetime, until: datetime) -> datetime | None:
        periods = self._periods(until)
        return self._slot(periods) if periods >= 0 else None

    def _count(self, after: datetime, until: datetime, limit: int) -> int:
        return max(0, self._periods(until) + 1) - max(0, self._periods(after) + 1)

    def _periods(self, instant: datetime) -> int:
        """How many whole periods lie between the anchor and the instant; negative before the anchor."""
        return (instant - whole_milliseconds(self.anchor)) // timedelta(seconds=self.seconds)

    def _slot(self, periods: int) -> datetime | None:
        try:
            return whole_milliseconds(self.anchor) + periods * timedelta(seconds=self.seconds)
        except OverflowError:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class AtSchedule(_Bounded):
    """One instant, aware. `zone`: the zone it was written in; it is not stored."""

    at: datetime
    zone: tzinfo = field(default=UTC, compare=False)
    kind: Literal["at"] = "at"

    def to_json(self, *, zone: str = "UTC") -> dict[str, Any]:
        """The API's JSON, with the offset of `zone` (the agent's)."""
        return {"kind": "at", "at": self.at.astimezone(load_zone(zone)).isoformat()}

    def in_words(self, zone: str | None = None) -> str:
        """`once at 2027-01-01 09:00 (Europe/Berlin)`, in this zone or as it was written; seconds unless they are 0."""
        local = self.at.astimezone(self.zone if zone is None else load_zone(zone))
        name = getattr(local.tzinfo, "key", None) or (local.isoformat()[-6:] if local.utcoffset() else "UTC")
        return f"once at {local.strftime('%Y-%m-%d %H:%M:%S' if local.second else '%Y-%m-%d %H:%M')} ({name})"

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a job's columns, without those that are empty."""
        return {"at": self.at}

    def _next(self, after: datetime) -> datetime | None:
        at = whole_milliseconds(self.at)
        return at if at > after else None

    def _last(self, after: datetime, until: datetime) -> datetime | None:
        return whole_milliseconds(self.at)

    def _count(self, after: datetime, until: datetime, limit: int) -> int:
        return int(after < whole_milliseconds(self.at) <= until)


Schedule = CronSchedule | EverySchedule | AtSchedule


def parse_schedule(data: Mapping[str, Any], *, default_timezone: str, now: datetime) -> Schedule:
    """Read the API's JSON; unknown keys are rejected. ScheduleError.

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
    """The `kind`, after a check that the mapping has all keys of this kind and no other."""
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
    first = schedule.next(now)
    if first is None or first > _years_after(now, HORIZON_YEARS):
        message = f"The expression {schedule.expr!r} does not fire within {HORIZON_YEARS} years."
        raise ScheduleError("never_fires", message)
    return schedule


def _years_after(instant: datetime, years: int) -> datetime:
    """Return the same day and time some years later; 1 March instead of a missing 29 February."""
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
    """A future ISO time in UTC, and the zone it was written in: `default_timezone` when it has no offset.

    ScheduleError, which names the field `name`.
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


def whole_milliseconds(instant: datetime) -> datetime:
    """The instant in UTC, cut to whole milliseconds, as in slots and run ids."""
    utc = as_utc(instant)
    beyond = utc.microsecond % 1000
    return utc.replace(microsecond=utc.microsecond - beyond) if beyond else utc


@lru_cache(maxsize=4096)
def cron_fields(expr: str) -> CronFields:
    """The fields of an expression, cached. ScheduleError."""
    return CronFields(expr)
