"""Five cron fields on naive wall time, without a zone: which minutes match. croniter parses them.

Day of month and day of week are joined by OR when both are given, by AND when one of them begins with `*`
(as Vixie cron and Debian do).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from functools import lru_cache

from croniter import croniter
from croniter.croniter import CroniterBadDateError

from automations.schedules.errors import ScheduleError

MAX_EXPR = 200
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_SIZES = (60, 24, 31, 12, 7)
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = {name: number for number, name in enumerate(_DAY_NAMES)}
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WORDS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset(),
    frozenset({"L", "W"}),
    frozenset(_MONTHS),
    frozenset({*_DAYS, "L"}),
)
_DAY_OF_MONTH, _DAY_OF_WEEK = 2, 4
_CHARACTERS = re.compile(r"[0-9A-Z*,/?#-]+", re.ASCII)
_PART = re.compile(r"(?P<low>[0-9A-Z*?#]+)(-(?P<high>[0-9A-Z#]+))?(/(?P<step>[0-9]{1,3}))?", re.ASCII)
_SPECIAL_DAY = re.compile(r"#|L[0-9]", re.ASCII)
# croniter raises these for expressions it does not understand; most are ValueErrors.
_CRONITER_ERRORS = (ValueError, AttributeError, TypeError, OverflowError)


def read_expr(expr: object) -> str:
    """The expression with single spaces and capital letters. ScheduleError bad_cron or never_fires."""
    if not isinstance(expr, str):
        raise _bad("The expression must be text.")
    if len(expr) > MAX_EXPR:
        raise _bad(f"The expression is longer than {MAX_EXPR} characters.")
    fields = re.findall(r"\S+", expr.upper(), re.ASCII)  # only ASCII spaces separate fields
    if len(fields) != len(_FIELDS):
        raise _bad(f"A cron expression has exactly 5 fields; this one has {len(fields)}.")
    for index, field in enumerate(fields):
        _check_field(index, field)
    _check_days(fields[2], fields[4])
    normal = " ".join(fields)
    _expand(normal)
    return normal


def _check_field(index: int, field: str) -> None:
    """Reject what croniter reads in an unexpected way (`5-1`, `5-5`, `*/90`) or at random (`R`, `H`)."""
    if not _CHARACTERS.fullmatch(field):
        raise _bad(f"The {_FIELDS[index]} {field[:40]!r} has a character that is not allowed in cron.")
    for word in re.findall(r"[A-Z]+", field):
        if word not in _WORDS[index]:
            raise _bad(f"{word[:40]!r} is not a valid {_FIELDS[index]}.")
    for part in field.split(","):
        _check_part(index, part)


def _check_part(index: int, part: str) -> None:
    match = _PART.fullmatch(part)
    if match is None:
        raise _bad(f"The {_FIELDS[index]} {part[:40]!r} is not a number, a range or a step.")
    step = match["step"]
    if step is not None and not 1 <= int(step) <= _SIZES[index]:
        raise _bad(f"The step of {part!r} is out of range: a {_FIELDS[index]} takes 1 to {_SIZES[index]}.")
    if match["high"] is not None:
        _check_range(index, part, _number(index, match["low"]), _number(index, match["high"]))


def _check_range(index: int, part: str, low: int | None, high: int | None) -> None:
    """Reject a range of one member, and a range that wraps unless it is of months or weekdays (`NOV-FEB`)."""
    if low is None or high is None:
        return
    if low == high or (index == _DAY_OF_WEEK and (low, high) == (7, 0)):  # croniter: the whole cycle
        raise _bad(f"The range {part!r} has one member; write it as a single value.")
    if low > high and index <= _DAY_OF_MONTH:
        raise _bad(f"The range {part!r} runs backwards; write the smaller value first.")


def _number(index: int, text: str) -> int | None:
    if text.isdigit():
        return int(text)
    return _DAYS.get(text) if index == _DAY_OF_WEEK else _MONTHS.get(text)


def _check_days(day_of_month: str, day_of_week: str) -> None:
    """Reject `W`, `#` and `L5` together with the other day field: croniter joins them by AND, cron by OR."""
    special = "W" in day_of_month or _SPECIAL_DAY.search(day_of_week)
    if special and day_of_month not in ("*", "?") and day_of_week not in ("*", "?"):
        raise _bad("A day with `W`, `#` or `L5` cannot be joined with the other day field.")


def _bad(message: str) -> ScheduleError:
    return ScheduleError("bad_cron", message)


@lru_cache(maxsize=4096)
def _expand(normal: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The minutes and the hours that match. ScheduleError bad_cron or never_fires."""
    try:
        expanded, _ = croniter.expand(normal)
    except _CRONITER_ERRORS as error:
        raise _bad(f"The expression {normal!r} is not valid cron: {_reason(error)}") from None
    try:
        croniter.expand(normal, strict=True)
    except _CRONITER_ERRORS:
        message = f"The expression {normal!r} names a day that its months do not have."
        raise ScheduleError("never_fires", message) from None
    return _numbers(expanded[0], 60), _numbers(expanded[1], 24)


def _reason(error: Exception) -> str:
    """croniter's message without the expression that it repeats."""
    words = re.sub(r"^\[.*?\]\s*(is not acceptable)?[,. ]*", "", str(error).strip(), flags=re.DOTALL)
    return words[:200] or "this form is not supported"


def _numbers(values: Sequence[int | str], size: int) -> tuple[int, ...]:
    return tuple(range(size)) if "*" in values else tuple(sorted(int(value) for value in values))


class CronFields:
    """The minutes that an expression matches, on naive wall time. Immutable, so it may be shared between threads.

    All matching days have the same minutes, so croniter is asked for days only, and its answers are cached.
    ScheduleError bad_cron or never_fires.
    """

    def __init__(self, expr: str) -> None:
        normal = read_expr(expr)
        minute, hour, *days = normal.split()
        minutes, hours = _expand(normal)
        self._days = " ".join(("0", "0", *days))
        self._times = tuple(60 * hour + minute for hour in hours for minute in minutes)  # of a day, ascending
        # As in Vixie cron: a fixed time, unless the minute or the hour begins with a star.
        self.is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def after(self, wall: datetime) -> datetime | None:
        """The first matching minute later than `wall`; None when there is none within 50 years."""
        midnight = datetime.combine(wall.date(), time())
        day = _day_from(self._days, midnight)
        if day == midnight:
            index = bisect_right(self._times, (wall - midnight) // _MINUTE)
            if index < len(self._times):
                return day + self._times[index] * _MINUTE
            day = _day_from(self._days, midnight + _DAY)
        return None if day is None else day + self._times[0] * _MINUTE

    def until(self, wall: datetime) -> datetime | None:
        """The last matching minute not later than `wall`; None when there is none within 50 years."""
        midnight = datetime.combine(wall.date(), time())
        day = _day_until(self._days, midnight)
        if day == midnight:
            index = bisect_right(self._times, (wall - midnight) // _MINUTE)
            if index > 0:
                return day + self._times[index - 1] * _MINUTE
            day = _day_until(self._days, midnight - _DAY)
        return None if day is None else day + self._times[-1] * _MINUTE

    def count(self, low: datetime, high: datetime, limit: int) -> int:
        """The number of matching minutes with low <= minute < high. Counting stops above `limit`.

        It counts by days, so that an expression that matches every minute stays cheap over years.
        """
        total = 0
        day = _day_from(self._days, datetime.combine(low.date(), time()))
        while day is not None and day < high and total <= limit:
            first = bisect_left(self._times, _minutes_up(low - day)) if low > day else 0
            last = bisect_left(self._times, _minutes_up(high - day))
            total += max(0, last - first)
            day = _day_from(self._days, day + _DAY)
        return total


def _minutes_up(span: timedelta) -> int:
    """The span in whole minutes, rounded up."""
    return -(-span // _MINUTE)


@lru_cache(maxsize=16_384)
def _day_from(days: str, midnight: datetime) -> datetime | None:
    """The first matching day from `midnight` on."""
    return _step(days, midnight - _MINUTE, back=False)


@lru_cache(maxsize=16_384)
def _day_until(days: str, midnight: datetime) -> datetime | None:
    """The last matching day up to `midnight`, inclusive."""
    return _step(days, midnight + _MINUTE, back=True)


def _step(expr: str, wall: datetime, *, back: bool) -> datetime | None:
    """The next or previous match of a whole minute. A new croniter each time: it is not thread-safe."""
    try:
        walk = croniter(expr, wall, ret_type=datetime, day_or=True, implement_cron_bug=True)
        found = walk.get_prev() if back else walk.get_next()
    except CroniterBadDateError:
        return None
    except _CRONITER_ERRORS as error:  # also the end of the calendar: "year 10000 is out of range"
        if wall.year > 9900 or wall.year < 100:
            return None
        raise _bad(f"No next time can be computed for the expression {expr!r}: {_reason(error)}") from None
    return found
