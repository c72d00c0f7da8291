"""The kinds of schedule and their slots (rule 4.6).

Pure arithmetic without database or clock; `now` is always an argument. Slots are in UTC, on whole milliseconds.

Where a new kind goes:

* here: a class beside the others, its keys in `_KEYS`, its reader in `parse_schedule`;
* `automations/models/job.py`: a member of `ScheduleKind`, columns, and the CHECK, with a migration;
* `plan.py`: the columns are read by `schedule_of`; `describe.py`: if clock changes concern it;
* every other place that differs by kind names `ScheduleKind` or a class of a schedule:
  `git grep -E 'ScheduleKind|(Cron|Rule|Every|At)Schedule'` finds the parameters of tools, routines, API, form, admin,
  command, import and the walk for time zones. `git grep every_seconds` finds the rules for intervals, and the
  arguments of the MCP server.
"""

# ruff: noqa: ARG002 -- all kinds have the same signatures

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

from automations.exceptions import ScheduleError
from automations.schedules.cron_fields import CronFields, read_expr
from automations.schedules.cron_slots import count_cron, last_cron, next_cron
from automations.schedules.cron_words import cron_words
from automations.schedules.day_times import DayTimes
from automations.schedules.excepted_days import (
    KEYS,
    NO_DAYS,
    ExceptedDays,
    end_of_day,
    end_of_day_before,
    read_excepted,
)
from automations.schedules.rule_fields import RuleFields, read_rule
from automations.schedules.rule_words import rule_words
from automations.schedules.wall_time import as_utc, instant_ahead, wall_at
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
_FARTHEST = timedelta(days=366 * HORIZON_YEARS)
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_KEYS = {
    "cron": (frozenset({"kind", "expr"}), KEYS | {"timezone"}),
    "rrule": (frozenset({"kind", "rule", "starts_at"}), KEYS | {"timezone"}),
    "every": (frozenset({"kind", "seconds"}), frozenset[str]()),
    "at": (frozenset({"kind", "at"}), frozenset[str]()),
}


class _Bounded:
    """Base of all kinds: no slot lies before the first instant or after the last one.

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
class WallSchedule(_Bounded):
    """Base of the kinds on the wall time of `timezone` (an IANA name). The `excepted` days have no slots."""

    timezone: str
    excepted: ExceptedDays = NO_DAYS

    @property
    def fields(self) -> DayTimes:
        """The wall times. ScheduleError."""
        raise NotImplementedError

    def _next(self, after: datetime) -> datetime | None:
        """The first slot; None if the days are excepted for eight years."""
        zone, horizon = load_zone(self.timezone), after + _FARTHEST
        slot = next_cron(self.fields, zone, after)
        while slot is not None and slot <= horizon and self.excepted.have(slot, zone):
            slot = next_cron(self.fields, zone, end_of_day(zone, slot))
        return slot if slot is None or not self.excepted.have(slot, zone) else None

    def _last(self, after: datetime, until: datetime) -> datetime | None:
        zone = load_zone(self.timezone)
        slot = last_cron(self.fields, zone, after, until)
        while slot is not None and self.excepted.have(slot, zone):
            slot = last_cron(self.fields, zone, after, end_of_day_before(zone, slot))
        return slot

    def _count(self, after: datetime, until: datetime, limit: int) -> int:
        zone = load_zone(self.timezone)
        if self.excepted == NO_DAYS:
            return count_cron(self.fields, zone, after, until, limit)
        count, slot = 0, self._next(after)
        while slot is not None and slot <= until and count <= limit:
            count, slot = count + 1, self._next(slot)
        return count


@dataclass(frozen=True, kw_only=True, slots=True)
class CronSchedule(WallSchedule):
    """Five cron fields."""

    expr: str
    kind: Literal["cron"] = "cron"

    @property
    def fields(self) -> DayTimes:
        """See `WallSchedule.fields`."""
        return cron_fields(self.expr)

    def to_json(self, *, zone: str = "UTC") -> dict[str, Any]:
        """The API's JSON, with the schedule's own zone."""
        return {
            "kind": "cron",
            "expr": self.expr,
            "timezone": self.timezone,
            **self.excepted.to_json(),
        }

    def in_words(self, zone: str | None = None) -> str:
        """`every day at 09:00 (Asia/Shanghai)`, in the schedule's own zone."""
        words = cron_words(read_expr(self.expr)) or f"cron `{self.expr}`"
        return f"{words}{self.excepted.in_words()} ({self.timezone})"

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a job's columns, without those that are empty."""
        return {"expr": self.expr, "timezone": self.timezone, **self.excepted.columns}


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleSchedule(WallSchedule):
    """A recurrence rule of RFC 5545. `starts_at`: its first wall time, naive."""

    rule: str
    starts_at: datetime
    kind: Literal["rrule"] = "rrule"

    @property
    def fields(self) -> RuleFields:
        """See `WallSchedule.fields`."""
        return rule_fields(self.rule, self.starts_at)

    def to_json(self, *, zone: str = "UTC") -> dict[str, Any]:
        """The API's JSON, with the schedule's own zone."""
        return {
            "kind": "rrule",
            "rule": self.rule,
            "starts_at": self.starts_at.isoformat(timespec="minutes"),
            "timezone": self.timezone,
            **self.excepted.to_json(),
        }

    def in_words(self, zone: str | None = None) -> str:
        """`every two weeks on Monday at 09:00 (Asia/Shanghai)`, in the schedule's own zone."""
        words = rule_words(self.fields) or f"rule `{self.rule}` from {self.starts_at:%Y-%m-%d %H:%M}"
        return f"{words}{self.excepted.in_words()} ({self.timezone})"

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a job's columns, without those that are empty. The wall time is stored as if it was UTC."""
        start = self.starts_at.replace(tzinfo=UTC)
        return {"expr": self.rule, "anchor": start, "timezone": self.timezone, **self.excepted.columns}


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


Schedule = CronSchedule | RuleSchedule | EverySchedule | AtSchedule


def parse_schedule(data: Mapping[str, Any], *, default_timezone: str, now: datetime) -> Schedule:
    """Read the API's JSON; unknown keys are rejected. ScheduleError.

    `default_timezone` (the agent's) is used for a cron or rule without `timezone` and for an `at` without offset. The
    anchor of an `every` is `now`, so its first slot is `seconds` from now.
    """
    kind = _checked_kind(data)
    if kind in ("cron", "rrule"):
        return _read_wall(data, data.get("timezone", default_timezone), as_utc(now))
    if kind == "every":
        return _read_every(data["seconds"], as_utc(now))
    return _read_at(data["at"], default_timezone, as_utc(now))


def _checked_kind(data: object) -> str:
    """The `kind`, after a check that the mapping has all keys of this kind and no other."""
    if not isinstance(data, Mapping):
        raise ScheduleError("bad_schedule", "A schedule is an object with a `kind`.")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ScheduleError("bad_schedule", "The `kind` of a schedule is `cron`, `rrule`, `every` or `at`.")
    needed, optional = _KEYS[kind]
    missing = sorted(needed - data.keys())
    if missing:
        raise ScheduleError("bad_schedule", f"A schedule of kind `{kind}` needs `{missing[0]}`.")
    unknown = sorted(str(key)[:40] for key in data.keys() - needed - optional)
    if unknown:
        raise ScheduleError("bad_schedule", f"A schedule of kind `{kind}` has no key `{unknown[0]}`.")
    return kind


def _read_wall(data: Mapping[str, Any], timezone: object, now: datetime) -> CronSchedule | RuleSchedule:
    if not isinstance(timezone, str):
        raise ScheduleError("unknown_timezone", "The time zone must be a name such as `Europe/Berlin`.")
    zone = load_zone(timezone)
    schedule: CronSchedule | RuleSchedule
    if data["kind"] == "cron":
        read_expr(data["expr"])
        schedule = CronSchedule(expr=" ".join(str(data["expr"]).split()), timezone=timezone)
    else:
        start = _read_start(data["starts_at"], zone)
        schedule = RuleSchedule(rule=read_rule(data["rule"], zone), starts_at=start, timezone=timezone)
    excepted = read_excepted(data.get("except", []), data.get("except_holidays", ""))
    schedule = replace(schedule, excepted=excepted)
    first = schedule.next(now)
    if first is None or first > _years_after(now, HORIZON_YEARS):
        named = f"expression {schedule.expr!r}" if schedule.kind == "cron" else f"rule {schedule.rule!r}"
        raise ScheduleError("never_fires", f"The {named} does not fire within {HORIZON_YEARS} years.")
    return schedule


def _read_start(text: object, zone: ZoneInfo) -> datetime:
    """A wall time to the minute. With an offset, what the clocks of the zone show then."""
    if not isinstance(text, str) or not _AT.fullmatch(text):
        raise ScheduleError("bad_time", "`starts_at` must be a local time such as `2026-11-30T09:00`.")
    try:
        given = datetime.fromisoformat(text.upper())
        wall = wall_at(zone, given) if given.tzinfo else given
    except (ValueError, OverflowError):
        raise ScheduleError("bad_time", f"There is no time {text!r}.") from None
    if wall.second or wall.microsecond or not _FIRST_INSTANT.year <= wall.year < _LAST_INSTANT.year:
        raise ScheduleError("bad_time", f"`starts_at` must be a time to the minute since 1970, not {text!r}.")
    return wall


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
def rule_fields(rule: str, start: datetime) -> RuleFields:
    """The fields of a rule, cached. ScheduleError."""
    return RuleFields(rule, start)


@lru_cache(maxsize=4096)
def cron_fields(expr: str) -> CronFields:
    """The fields of an expression, cached. ScheduleError."""
    return CronFields(expr)
