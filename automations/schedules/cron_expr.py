"""Read the five fields of a cron expression.

Day of month and day of week are joined by OR when both are given, by AND when one of them begins with `*`
(as Vixie cron and Debian do). Besides their numbers and names, days may be `L`, `LW` and `15W`, or `L5` and `MON#1`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from automations.schedules.cron_days import LAST, Days, days_of
from automations.schedules.errors import ScheduleError

MAX_EXPR = 200
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_RANGES = (range(60), range(24), range(1, 32), range(1, 13), range(7))
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = {name: number for number, name in enumerate(_DAY_NAMES)}
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK = 2, 3, 4
_NAMES: dict[int, dict[str, int]] = {_MONTH: _MONTHS, _DAY_OF_WEEK: _DAYS}
_ALL_CALENDARS = range(2000, 2028)  # years that begin with each weekday, leap years and others
_CHARACTERS = re.compile(r"[0-9A-Z*,/?#-]+", re.ASCII)
_PART = re.compile(r"(?P<low>[0-9A-Z*]+)(-(?P<high>[0-9A-Z]+))?(/(?P<step>[0-9]{1,3}))?", re.ASCII)
_NEAREST = re.compile(r"W(?P<before>[0-9]{1,2})|(?P<after>[0-9]{1,2})W", re.ASCII)
_LAST_DAY = re.compile(r"L(?P<before>[0-9]|[A-Z]{3})|(?P<after>[0-9]|[A-Z]{3})L", re.ASCII)
_NTH = re.compile(r"(?P<day>[0-9]|[A-Z]{3})#(?P<nth>[1-5])", re.ASCII)
_SHORT = {
    "@HOURLY": "0 * * * *", "@DAILY": "0 0 * * *", "@MIDNIGHT": "0 0 * * *", "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *", "@YEARLY": "0 0 1 1 *", "@ANNUALLY": "0 0 1 1 *",
}  # fmt: skip


def read_expr(expr: object) -> str:
    """The expression with single spaces and capital letters. ScheduleError bad_cron or never_fires."""
    if not isinstance(expr, str):
        raise _bad("The expression must be text.")
    if len(expr) > MAX_EXPR:
        raise _bad(f"The expression is longer than {MAX_EXPR} characters.")
    fields = re.findall(r"\S+", expr.upper(), re.ASCII)  # only ASCII spaces separate fields
    if len(fields) != len(_FIELDS):
        raise _bad(_number_of_fields(fields))
    normal = " ".join(fields)
    expand(normal)
    return normal


def _number_of_fields(fields: list[str]) -> str:
    if len(fields) == 1 and fields[0] in _SHORT:
        return f"{fields[0].lower()!r} is not a cron expression; write `{_SHORT[fields[0]]}`."
    problem = f"A cron expression has exactly 5 fields; this one has {len(fields)}"
    return f"{problem}: leave out seconds and years." if len(fields) in (6, 7) else f"{problem}."


def _bad(message: str) -> ScheduleError:
    return ScheduleError("bad_cron", message)


@lru_cache(maxsize=4096)
def expand(normal: str) -> tuple[tuple[int, ...], tuple[int, ...], Days]:
    """The minutes, hours and days that match. ScheduleError bad_cron or never_fires."""
    fields = normal.split()
    for index, field in enumerate(fields):
        if not _CHARACTERS.fullmatch(field):
            raise _bad(f"The {_FIELDS[index]} {field[:40]!r} has a character that is not allowed in cron.")
    # `?` says, as `*` does, that the field names no days
    day, weekday = ("*" if field == "?" else field for field in (fields[2], fields[4]))
    days, special_days = _members(_DAY_OF_MONTH, day)
    weekdays, special_weekdays = _members(_DAY_OF_WEEK, weekday)
    found = Days(
        days=days,
        nearest=frozenset(_nearest(part) for part in special_days if _NEAREST.fullmatch(part)),
        is_last="L" in special_days,
        is_last_weekday="LW" in special_days,
        months=_members(_MONTH, fields[3])[0],
        weekdays=weekdays,
        nth=frozenset(_nth(part) for part in special_weekdays),
        joined_by_and=day.startswith("*") or weekday.startswith("*"),
    )
    minutes, hours = (_members(index, fields[index])[0] for index in (0, 1))
    if not any(days_of(found, year, month) for year in _ALL_CALENDARS for month in _RANGES[_MONTH]):
        message = f"The expression {normal!r} names a day that its months do not have."
        raise ScheduleError("never_fires", message)
    return tuple(sorted(minutes)), tuple(sorted(hours)), found


def _members(index: int, field: str) -> tuple[frozenset[int], list[str]]:
    """The numbers of a field, and its parts that depend on the month (`L`, `15W`, `MON#1`)."""
    numbers: set[int] = set()
    special: list[str] = []
    for part in field.split(","):
        if _is_special(index, part):
            special.append(part)
        else:
            numbers.update(_numbers(index, part))
    return frozenset(numbers), special


def _is_special(index: int, part: str) -> bool:
    if index == _DAY_OF_MONTH:
        nearest = _NEAREST.fullmatch(part)
        return part in ("L", "LW") or (nearest is not None and _nearest(part) in _RANGES[index])
    found = (_LAST_DAY.fullmatch(part) or _NTH.fullmatch(part)) if index == _DAY_OF_WEEK else None
    return found is not None and 0 <= _nth(part)[0] <= 7


def _nearest(part: str) -> int:
    return int(part.strip("W"))


def _nth(part: str) -> tuple[int, int]:
    """The weekday and the number of `MON#1`, `L5` or `5L`; weekday -1 if there is none of this name."""
    match = _NTH.fullmatch(part)
    day = match["day"] if match else part.removeprefix("L").removesuffix("L")
    number = int(day) if day.isdigit() else _DAYS.get(day, -1)
    return (0 if number == 7 else number), (int(match["nth"]) if match else LAST)


def _numbers(index: int, part: str) -> list[int]:
    """The numbers of a value, a range or a step."""
    match = _PART.fullmatch(part)
    if match is None:
        raise _bad(_unknown(index, part))
    low, high, step = match["low"], match["high"], int(match["step"] or 1)
    members = _RANGES[index]
    if not 1 <= step <= len(members):
        sizes = f"a {_FIELDS[index]} takes 1 to {len(members)}"
        raise _bad(f"The step of {part[:40]!r} is out of range: {sizes}.")
    if low == "*" and high is None:
        return list(members[::step])
    first = _number(index, low, part)
    if high is not None:
        is_end = (index, high) == (_DAY_OF_MONTH, "L")
        return _range(index, part, first, 31 if is_end else _number(index, high, part), step)
    first = first % 7 if index == _DAY_OF_WEEK else first
    return [first] if match["step"] is None else list(range(first, members.stop, step))


def _range(index: int, part: str, first: int, last: int, step: int) -> list[int]:
    """The members of a range, in its order. One of months or weekdays may wrap (`NOV-FEB`)."""
    members = _RANGES[index]
    if first == last or (index, first, last) == (_DAY_OF_WEEK, 7, 0):
        raise _bad(f"The range {part[:40]!r} has one member; write it as a single value.")
    if index == _DAY_OF_WEEK:
        first = first % 7
        last = last + 7 if last < first else last
        return list(dict.fromkeys(number % 7 for number in range(first, last + 1, step)))
    if first < last:
        return list(range(first, last + 1, step))
    wrapped = [*range(first, members.stop), *range(members.start, last + 1)][::step]
    if index == _MONTH:
        return wrapped
    ends = f"{first}-{members[-1]},{members[0]}-{last}"
    form = ends if step == 1 else ",".join(map(str, wrapped))
    raise _bad(f"The range {part[:40]!r} runs backwards; write `{form}`.")


def _number(index: int, text: str, part: str) -> int:
    """A number or a name of this part of a field."""
    names = _NAMES.get(index, {})
    if text in names:
        return names[text]
    if not text.isdigit():
        raise _bad(_unknown(index, part))
    number = int(text)
    if number not in _RANGES[index] and (index, number) != (_DAY_OF_WEEK, 7):
        ends = f"{_RANGES[index].start} to {7 if index == _DAY_OF_WEEK else _RANGES[index][-1]}"
        raise _bad(f"{text[:40]!r} is not a valid {_FIELDS[index]}; it must be from {ends}.")
    return number


def _unknown(index: int, part: str) -> str:
    """The problem of a part, with the form that works if it is one of another cron."""
    problem = f"{part[:40]!r} is not a valid {_FIELDS[index]}"
    if index == _DAY_OF_MONTH and re.search("[LW]", part):
        forms = "`L` for the last day, `LW` for the last weekday, `15W` for the weekday nearest to the 15th"
        return f"{problem}; write {forms}."
    if index == _DAY_OF_WEEK and re.search("[L#]", part):
        return f"{problem}; write `L5` for the last Friday, `MON#1` for the first Monday of the month."
    if re.match("[HR]", part):
        return f"{problem}; write a number, and spread jobs by `jitter_seconds`."
    return f"{problem}: it is not a number, a range or a step."
