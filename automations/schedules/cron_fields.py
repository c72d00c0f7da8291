"""Five cron fields on naive wall time, without a zone: which minutes match. croniter parses them.

Day of month and day of week are joined by OR when both are given, by AND when one of them begins with `*`
(as Vixie cron and Debian do). What croniter reads in another way is rewritten for it or refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from croniter import croniter
from croniter.croniter import CroniterBadDateError

from automations.exceptions import ScheduleError
from automations.schedules.day_times import DayTimes, times_of

MAX_EXPR = 200
_MINUTE = timedelta(minutes=1)
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_SIZES = (60, 24, 31, 12, 7)
_FIRST = (0, 0, 1, 1, 0)
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
_DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK = 2, 3, 4
_CHARACTERS = re.compile(r"[0-9A-Z*,/?#-]+", re.ASCII)
_PART = re.compile(r"(?P<low>[0-9A-Z*?#]+)(-(?P<high>[0-9A-Z#]+))?(/(?P<step>[0-9]{1,3}))?", re.ASCII)
_NAMED = "|".join(_DAY_NAMES)
_LAST_DAY = re.compile(rf"\b([0-7]|{_NAMED})(?:L\b|#-1(?![0-9]))|\bL({_NAMED})\b", re.ASCII)
_SHORT = {
    "@HOURLY": "0 * * * *", "@DAILY": "0 0 * * *", "@MIDNIGHT": "0 0 * * *", "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *", "@YEARLY": "0 0 1 1 *", "@ANNUALLY": "0 0 1 1 *",
}  # fmt: skip
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
        raise _bad(_number_of_fields(fields))
    fields[_DAY_OF_WEEK] = _LAST_DAY.sub(_last_day, fields[_DAY_OF_WEEK])
    for index, field in enumerate(fields):
        _check_field(index, field)
    _check_days(fields[2], fields[4])
    normal = " ".join(fields)
    _expand(normal)
    return normal


def _number_of_fields(fields: list[str]) -> str:
    if len(fields) == 1 and fields[0] in _SHORT:
        return f"{fields[0].lower()!r} is not a cron expression; write `{_SHORT[fields[0]]}`."
    problem = f"A cron expression has exactly 5 fields; this one has {len(fields)}"
    return f"{problem}: leave out seconds and years." if len(fields) in (6, 7) else f"{problem}."


def _last_day(match: re.Match[str]) -> str:
    """`5L`, `5#-1`, `FRIL` and `LFRI` as `L5`."""
    day = match[1] or match[2]
    return f"L{_DAYS.get(day, day)}"


def _check_field(index: int, field: str) -> None:
    """Reject what croniter reads in an unexpected way (`5-1`, `5-5`, `*/90`) or at random (`R`, `H`)."""
    if not _CHARACTERS.fullmatch(field):
        raise _bad(f"The {_FIELDS[index]} {field[:40]!r} has a character that is not allowed in cron.")
    for word in re.findall(r"[A-Z]+", field):
        if word not in _WORDS[index]:
            raise _bad(f"{word[:40]!r} is not a valid {_FIELDS[index]}{_form(index, word)}.")
    for part in field.split(","):
        _check_part(index, part)


def _check_part(index: int, part: str) -> None:
    match = _PART.fullmatch(part)
    if match is None:
        raise _bad(
            f"The {_FIELDS[index]} {part[:40]!r} is not a number, a range or a step{_form(index, part)}."
        )
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
        ends = f"{low}-{_FIRST[index] + _SIZES[index] - 1},{_FIRST[index]}-{high}"
        raise _bad(f"The range {part!r} runs backwards; write `{ends}`.")


def _form(index: int, part: str) -> str:
    """The form that works instead of one of another cron; empty if there is none."""
    if index == _DAY_OF_MONTH and re.fullmatch("LW|WL|L-[0-9]+", part):
        rule = "BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1" if "W" in part else f"BYMONTHDAY=-{int(part[2:]) + 1}"
        return f"; write a recurrence rule instead: `FREQ=MONTHLY;{rule}`"
    if index == _DAY_OF_MONTH and re.search("[LW]", part):
        return "; write `L` for the last day, `15W` for the weekday nearest to the 15th"
    if index == _DAY_OF_WEEK and re.search("[LW#]", part):
        return "; write `L5` for the last Friday, `5#1` for the first Friday of the month"
    return "; write a number, and spread jobs by `jitter_seconds`" if part.startswith(("H", "R")) else ""


def _number(index: int, text: str) -> int | None:
    if text.isdigit():
        return int(text)
    return _DAYS.get(text) if index == _DAY_OF_WEEK else _MONTHS.get(text)


def _check_days(day_of_month: str, day_of_week: str) -> None:
    """Reject `W`, `#` and `L5` beside other values or days: croniter joins them by AND or drops them, cron by OR."""
    special = [
        each for each, mark in ((day_of_month, r"W"), (day_of_week, r"#|L[0-9]")) if re.search(mark, each)
    ]
    for field in special:
        if "," in field:
            raise _bad(f"A day with `W`, `#` or `L5` must stand alone in its field, which is {field[:40]!r}.")
    if special and day_of_month not in ("*", "?") and day_of_week not in ("*", "?"):
        raise _bad("A day with `W`, `#` or `L5` cannot be joined with the other day field.")


def _bad(message: str) -> ScheduleError:
    return ScheduleError("bad_cron", message)


@lru_cache(maxsize=4096)
def _expand(normal: str) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The minutes and the hours that match, and the days for croniter. ScheduleError bad_cron or never_fires."""
    try:
        expanded, _ = croniter.expand(normal)
    except _CRONITER_ERRORS as error:
        form = next(filter(None, map(_form, range(len(_FIELDS)), normal.split())), "")
        raise _bad(f"The expression {normal!r} is not valid cron: {_reason(error)}{form}") from None
    days = _days_for_croniter(*normal.split()[2:])
    if not _comes(days):
        message = f"The expression {normal!r} names a day that its months do not have."
        raise ScheduleError("never_fires", message)
    return _numbers(expanded[0], 60), _numbers(expanded[1], 24), days


def _days_for_croniter(day: str, month: str, weekday: str) -> str:
    """The expression of midnights for the three fields, so that croniter reads them as cron does.

    croniter misreads three forms, which are rewritten: steps of ranges that wrap, a field with all values (it takes it
    for a `*`), and a day that never comes beside a weekday that does (it refuses both).
    """
    month, weekday = _unwrapped(_MONTH, month), _unwrapped(_DAY_OF_WEEK, weekday)
    if not day.startswith(("*", "?")) and not weekday.startswith(("*", "?")):  # one of both is enough
        if _has_all(_DAY_OF_MONTH, day) or _has_all(_DAY_OF_WEEK, weekday):
            day = weekday = "*"
        elif not _comes(f"0 0 {day} {month} *"):
            day = "*"
    return f"0 0 {day} {month} {weekday}"


def _unwrapped(index: int, field: str) -> str:
    """The field with each range that wraps written as a list."""
    return ",".join(_listed(index, part) for part in field.split(","))


def _listed(index: int, part: str) -> str:
    match = _PART.fullmatch(part)
    low, high = (_number(index, match[end] or "") for end in ("low", "high")) if match else (None, None)
    if match is None or low is None or high is None or low <= high:
        return part
    first, size = _FIRST[index], _SIZES[index]
    members = (first + (low - first + walked) % size for walked in range((high - low) % size + 1))
    return ",".join(map(str, list(members)[:: int(match["step"] or 1)]))


def _has_all(index: int, field: str) -> bool:
    fields = ["*"] * len(_FIELDS)
    fields[index] = field
    values = croniter.expand(" ".join(fields))[0][index]
    return "*" in values or len(set(values)) >= _SIZES[index]


def _comes(expr: str) -> bool:
    """Whether the day of the month comes in one of the months."""
    try:
        croniter.expand(expr, strict=True)
    except _CRONITER_ERRORS:
        return False
    return True


def _reason(error: Exception) -> str:
    """croniter's message without the expression that it repeats."""
    words = re.sub(r"^\[.*?\]\s*(is not acceptable)?[,. ]*", "", str(error).strip(), flags=re.DOTALL)
    return words[:200] or "this form is not supported"


def _numbers(values: Sequence[int | str], size: int) -> tuple[int, ...]:
    return tuple(range(size)) if "*" in values else tuple(sorted(int(value) for value in values))


class CronFields(DayTimes):
    """The minutes that an expression matches, on naive wall time. Immutable, so it may be shared between threads.

    All matching days have the same minutes, so croniter is asked for days only, and its answers are cached.
    ScheduleError bad_cron or never_fires.
    """

    def __init__(self, expr: str) -> None:
        normal = read_expr(expr)
        minute, hour, *_ = normal.split()
        minutes, hours, self._days = _expand(normal)
        # As in Vixie cron: a fixed time, unless the minute or the hour begins with a star.
        is_fixed = not minute.startswith("*") and not hour.startswith("*")
        super().__init__(times_of(hours, minutes), is_fixed=is_fixed)

    def matches_as(self, other: CronFields) -> bool:
        """Whether the same minutes match, however the two expressions are written."""
        days = croniter.expand(self._days) == croniter.expand(other._days)
        return days and self.times == other.times and self.is_fixed == other.is_fixed

    def day_from(self, midnight: datetime) -> datetime | None:
        """See `DayTimes.day_from`."""
        return _day_from(self._days, midnight)

    def day_until(self, midnight: datetime) -> datetime | None:
        """See `DayTimes.day_until`."""
        return _day_until(self._days, midnight)


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
