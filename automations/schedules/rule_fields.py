"""Recurrence rules (RFC 5545) on naive wall time, without a zone: which minutes match. dateutil expands them.

A rule repeats by the day, week, month or year, and its times are fixed times of the day. What repeats within a day is
an interval or cron. dateutil walks from a rule's start and, if no day matches, through all years. So it is asked for
one month or year at a time, and the interval is counted here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from datetime import datetime, time
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from dateutil import rrule

from automations.exceptions import ScheduleError
from automations.schedules.day_times import MINUTE, DayTimes, times_of
from automations.schedules.wall_time import wall_at

MAX_RULE = 200
MOST_COUNT = 1000
MOST_TIMES = 24  # of a day
_YEARS = 50  # how far a match is looked for
_MOST_WINDOWS = 1_200  # months or years in which matches are counted
_END = datetime(9900, 1, 1)  # noqa: DTZ001 - wall time; no slot lies later
_MOST_INTERVAL = {"DAILY": 3650, "WEEKLY": 520, "MONTHLY": 120, "YEARLY": 10}  # ten years, as of `every`
_NUMBERS = {  # the largest number of each list; negative ones count from the end, except for months and times
    "BYMONTH": (1, 12), "BYMONTHDAY": (-31, 31), "BYYEARDAY": (-366, 366), "BYWEEKNO": (-53, 53),
    "BYHOUR": (0, 23), "BYMINUTE": (0, 59), "BYSETPOS": (-366, 366),
}  # fmt: skip
_NOT_WITH = {  # what RFC 5545 does not allow with a frequency, and positions in a week
    "DAILY": {"BYYEARDAY", "BYWEEKNO"},
    "WEEKLY": {"BYYEARDAY", "BYWEEKNO", "BYMONTHDAY", "BYSETPOS"},
    "MONTHLY": {"BYYEARDAY", "BYWEEKNO"},
    "YEARLY": set[str](),
}
_KNOWN = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS}
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY = re.compile(rf"([+-]?[1-9][0-9]?)?({'|'.join(_DAYS)})", re.ASCII)
_UNTIL = re.compile(r"([0-9]{8})(?:T([0-9]{4})[0-9]{2}(Z?))?", re.ASCII)
_OF_DATES = ("BYDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO")
_ONLY_THIS = (
    120_000  # an interval that leads out of the calendar, so that dateutil looks at one year or month
)
_EXAMPLE = "`FREQ=WEEKLY;INTERVAL=2;BYDAY=MO`"


def read_rule(rule: object, zone: ZoneInfo) -> str:
    """The rule in capital letters, its UNTIL on the zone's wall. ScheduleError bad_rule."""
    if not isinstance(rule, str):
        raise _bad(f"The rule must be text such as {_EXAMPLE}.")
    text = rule.strip().upper().removeprefix("RRULE:").rstrip(";")
    parts = rule_parts(text)
    found = _UNTIL.fullmatch(parts.get("UNTIL", ""))
    if found and found[3]:
        local = wall_at(zone, datetime.strptime(f"{found[1]}{found[2]}+0000", "%Y%m%d%H%M%z"))
        text = text.replace(found[0], f"{local:%Y%m%dT%H%M}00")
    return text


def rule_parts(text: str) -> dict[str, str]:
    """The parts of a rule by their names, checked. ScheduleError bad_rule."""
    if len(text) > MAX_RULE:
        raise _bad(f"The rule is longer than {MAX_RULE} characters.")
    parts: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if name not in _KNOWN or not equals or name in parts:
            raise _bad(f"{part[:40]!r} is not a part of a rule such as {_EXAMPLE}, or it is there twice.")
        parts[name] = value
    freq = parts.get("FREQ", "")
    if freq not in _NOT_WITH:
        more = "what repeats within a day is an interval or cron"
        raise _bad(f"FREQ is DAILY, WEEKLY, MONTHLY or YEARLY; {more}.")
    if unfit := sorted(_NOT_WITH[freq] & parts.keys()):
        raise _bad(f"{unfit[0]} cannot be used with FREQ={freq}.")
    _check_ends(parts)
    return parts


def _check_ends(parts: dict[str, str]) -> None:
    if "COUNT" in parts and "UNTIL" in parts:
        raise _bad("A rule ends by COUNT or by UNTIL, not by both.")
    if "UNTIL" in parts:
        _end_of(parts["UNTIL"])
    for name, most in (("INTERVAL", _MOST_INTERVAL[parts["FREQ"]]), ("COUNT", MOST_COUNT)):
        _number(name, parts.get(name, "1"), 1, most)
    if parts.get("WKST", "MO") not in _DAYS:
        raise _bad("WKST is a day such as MO.")


def _number(name: str, text: str, least: int, most: int) -> int:
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,4}", text, re.ASCII) else None
    if number is None or not least <= number <= most or (number == 0 and least != 0):
        raise _bad(
            f"{name} has numbers from {least} to {most}{' without 0' * (least < 0)}, not {text[:20]!r}."
        )
    return number


def _end_of(until: str) -> datetime:
    """The last minute, on the wall: of the whole day if there is no time."""
    found = _UNTIL.fullmatch(until)
    try:
        text = f"{found[1]}{found[2] or '2359'}" if found and "1970" <= found[1] < "9900" else ""
        return datetime.strptime(text, "%Y%m%d%H%M")  # noqa: DTZ007 - wall time
    except ValueError:
        raise _bad(f"UNTIL is a date such as 20271231 or 20271231T170000, not {until[:40]!r}.") from None


def _weekdays(parts: Mapping[str, str]) -> list[Any]:
    """BYDAY for dateutil."""
    value, freq = parts["BYDAY"], parts["FREQ"]
    found = [_DAY.fullmatch(each) for each in value.split(",")]
    days = [(int(each[1] or 0), each[2]) for each in found if each]
    if len(days) < len(found):
        raise _bad(f"BYDAY has days such as MO or -1FR, not {value[:40]!r}.")
    numbered = [number for number, _day in days if number]
    if numbered and (freq not in ("MONTHLY", "YEARLY") or "BYWEEKNO" in parts):
        raise _bad("A day with a number, such as -1FR, can only be used with FREQ=MONTHLY or YEARLY.")
    if len(numbered) not in (0, len(days)):  # dateutil would join them by AND
        raise _bad("BYDAY cannot have days with a number beside days without one.")
    return [getattr(rrule, day)(number or None) for number, day in days]


def _bad(message: str) -> ScheduleError:
    return ScheduleError("bad_rule", message)


class RuleFields(DayTimes):
    """The minutes that a rule matches from `start` on, on naive wall time. Immutable. ScheduleError bad_rule."""

    def __init__(self, rule: str, start: datetime) -> None:
        self.parts = parts = rule_parts(rule)
        self.start = start
        self._first = datetime.combine(start.date(), time())
        self.by: dict[str, Any] = {
            name.lower(): sorted({_number(name, each, *_NUMBERS[name]) for each in value.split(",")})
            for name, value in parts.items()
            if name in _NUMBERS
        }
        if "BYDAY" in parts:
            self.by["byweekday"] = _weekdays(parts)
        self.interval = int(parts.get("INTERVAL", "1"))
        self._wkst = _DAYS.index(parts.get("WKST", "MO"))
        self._is_yearly = parts["FREQ"] == "YEARLY"
        self._step = self.interval if parts["FREQ"] in ("MONTHLY", "YEARLY") else 1  # from window to window
        super().__init__(self._take_times(), is_fixed=True)
        self._add_days_of_start()
        self.end = _end_of(parts["UNTIL"]) if "UNTIL" in parts else None
        if "COUNT" in parts:
            self.end = self._last_of(int(parts["COUNT"]))

    def after(self, wall: datetime) -> datetime | None:
        """See `DayTimes.after`."""
        if self.end is not None and wall >= self.end:
            return None
        found = super().after(max(wall, self.start - MINUTE))
        return found if found is None or self.end is None or found <= self.end else None

    def until(self, wall: datetime) -> datetime | None:
        """See `DayTimes.until`."""
        found = super().until(wall if self.end is None else min(wall, self.end))
        return found if found is not None and found >= self.start else None

    def count(self, low: datetime, high: datetime, limit: int) -> int:
        """See `DayTimes.count`."""
        high = high if self.end is None else min(high, self.end + MINUTE)
        return super().count(max(low, self.start), high, limit)

    def day_from(self, midnight: datetime) -> datetime | None:
        """See `DayTimes.day_from`."""
        midnight = max(midnight, self._first)
        for window in self._windows(midnight, 1):
            days = _days_of(self, window)
            index = bisect_left(days, midnight)
            if index < len(days):
                return days[index]
        return None

    def day_until(self, midnight: datetime) -> datetime | None:
        """See `DayTimes.day_until`."""
        for window in self._windows(midnight, -1):
            days = _days_of(self, window)
            index = bisect_right(days, midnight)
            if index > 0:
                return days[index - 1]
        return None

    def _take_times(self) -> tuple[int, ...]:
        """The times of a day. Positions in a day are positions of its times."""
        hours = self.by.pop("byhour", [self.start.hour])
        times = times_of(hours, self.by.pop("byminute", [self.start.minute]))
        if "bysetpos" in self.by and self.parts["FREQ"] == "DAILY":
            chosen = self.by.pop("bysetpos")
            most = len(times)
            times = tuple(each for n, each in enumerate(times) if n + 1 in chosen or n - most in chosen)
        elif "bysetpos" in self.by and len(times) > 1:
            raise _bad("BYSETPOS takes one time of day, except with FREQ=DAILY.")
        if not 1 <= len(times) <= MOST_TIMES:
            raise _bad(f"A rule has 1 to {MOST_TIMES} times of day, not {len(times)}; more often is cron.")
        return times

    def _add_days_of_start(self) -> None:
        """The days that a rule takes from its start when it names none."""
        if any(name in self.parts for name in _OF_DATES):
            return
        match self.parts["FREQ"]:
            case "DAILY":
                self.by["bymonthday"] = range(1, 32)
            case "WEEKLY":
                self.by["byweekday"] = [self.start.weekday()]
            case freq:
                self.by["bymonthday"] = [self.start.day]
                if freq == "YEARLY":
                    self.by.setdefault("bymonth", [self.start.month])

    def _last_of(self, count: int) -> datetime:
        """The match with this number; the last one of the calendar if there are fewer."""
        last = self.start - MINUTE
        windows = range(self._window(self._first), self._window(_END), self._step)
        for window in windows[:_MOST_WINDOWS]:
            minutes = [day + each * MINUTE for day in self.days_of(window) for each in self.times]
            found = [each for each in minutes if each >= self.start]
            if len(found) >= count:
                return found[count - 1]
            count, last = count - len(found), found[-1] if found else last
        if len(windows) > _MOST_WINDOWS:
            raise _bad("COUNT reaches too far ahead; use a smaller one, or UNTIL.")
        return last

    def _window(self, day: datetime) -> int:
        """The year or month of a day, as a number."""
        return day.year if self._is_yearly else 12 * day.year + day.month - 1

    def _windows(self, midnight: datetime, direction: int) -> range:
        """The windows in which days are looked for, from that of `midnight` on or back to the start's."""
        begin, now = self._window(self._first), self._window(midnight)
        step = self._step
        far = _YEARS if self._is_yearly else 12 * _YEARS
        if direction > 0:
            now += (begin - now) % step
            return range(now, min(now + far, self._window(_END)), step)
        now -= (now - begin) % step
        return range(now, max(begin, now - far) - 1, -step)

    def days_of(self, window: int) -> tuple[datetime, ...]:
        """The matching days of a year or month, from the start on."""
        begin = datetime(window, 1, 1) if self._is_yearly else datetime(window // 12, window % 12 + 1, 1)  # noqa: DTZ001 - wall time
        found = rrule.rrule(
            rrule.YEARLY if self._is_yearly else rrule.MONTHLY,
            dtstart=begin,
            interval=_ONLY_THIS,
            wkst=self._wkst,
            **self.by,
        )
        return tuple(day for day in found if day >= self._first and self._is_in_turn(day))

    def _is_in_turn(self, day: datetime) -> bool:
        """Whether the interval of days or weeks names the day."""
        match self.parts["FREQ"]:
            case "DAILY":
                return (day - self._first).days % self.interval == 0
            case "WEEKLY":
                into_week = (self._first.weekday() - self._wkst) % 7
                return ((day - self._first).days + into_week) // 7 % self.interval == 0
        return True


@lru_cache(maxsize=1024)
def _days_of(fields: RuleFields, window: int) -> tuple[datetime, ...]:
    return fields.days_of(window)
