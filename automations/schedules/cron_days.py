"""The days of a month that a cron expression matches."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from functools import lru_cache

LAST = -1  # instead of a number: the last such weekday of a month


@dataclass(frozen=True, kw_only=True, slots=True)
class Days:
    """The days that match. `nearest`: the weekday nearest to each of these days. `nth`: pairs of weekday and number."""

    days: frozenset[int]
    nearest: frozenset[int]
    is_last: bool
    is_last_weekday: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    joined_by_and: bool


@lru_cache(maxsize=16_384)
def days_of(days: Days, year: int, month: int) -> tuple[int, ...]:
    """The days of this month that match."""
    if month not in days.months:
        return ()
    monday_based, length = monthrange(year, month)
    first = (monday_based + 1) % 7  # the weekday of the 1st; 0 is Sunday
    by_day = {day for day in days.days if day <= length} | {
        _nearest_weekday(day, first, length) for day in days.nearest if day <= length
    }
    if days.is_last:
        by_day.add(length)
    if days.is_last_weekday:
        by_day.add(_nearest_weekday(length, first, length))
    by_weekday = {day for day in range(1, length + 1) if (first + day - 1) % 7 in days.weekdays}
    for weekday, nth in days.nth:
        same = range(1 + (weekday - first) % 7, length + 1, 7)
        if nth <= len(same):
            by_weekday.add(same[nth if nth == LAST else nth - 1])
    return tuple(sorted(by_day & by_weekday if days.joined_by_and else by_day | by_weekday))


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """The weekday (Monday to Friday) nearest to a day, in the same month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
