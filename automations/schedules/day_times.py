"""Minutes on naive wall time: the same times of each matching day, as of cron fields and recurrence rules."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import datetime, time, timedelta

MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


def times_of(hours: Iterable[int], minutes: Iterable[int]) -> tuple[int, ...]:
    """The times of a day at these minutes of these hours, in minutes since midnight, ascending."""
    return tuple(sorted({60 * hour + minute for hour in hours for minute in set(minutes)}))


class DayTimes:
    """The minutes that match. `is_fixed`: see `cron_slots.py`. The subclasses know the days."""

    def __init__(self, times: tuple[int, ...], *, is_fixed: bool) -> None:
        self.times = times
        self.is_fixed = is_fixed

    def day_from(self, midnight: datetime) -> datetime | None:
        """The first matching day from `midnight` on."""
        raise NotImplementedError

    def day_until(self, midnight: datetime) -> datetime | None:
        """The last matching day up to `midnight`, inclusive."""
        raise NotImplementedError

    def after(self, wall: datetime) -> datetime | None:
        """The first matching minute later than `wall`; None when there is none within 50 years."""
        midnight = datetime.combine(wall.date(), time())
        day = self.day_from(midnight)
        if day == midnight:
            index = bisect_right(self.times, (wall - midnight) // MINUTE)
            if index < len(self.times):
                return day + self.times[index] * MINUTE
            day = self.day_from(midnight + _DAY)
        return None if day is None else day + self.times[0] * MINUTE

    def until(self, wall: datetime) -> datetime | None:
        """The last matching minute not later than `wall`; None when there is none within 50 years."""
        midnight = datetime.combine(wall.date(), time())
        day = self.day_until(midnight)
        if day == midnight:
            index = bisect_right(self.times, (wall - midnight) // MINUTE)
            if index > 0:
                return day + self.times[index - 1] * MINUTE
            day = self.day_until(midnight - _DAY)
        return None if day is None else day + self.times[-1] * MINUTE

    def count(self, low: datetime, high: datetime, limit: int) -> int:
        """The number of matching minutes with low <= minute < high. Counting stops above `limit`.

        It counts by days, so that an expression that matches every minute stays cheap over years.
        """
        total = 0
        day = self.day_from(datetime.combine(low.date(), time()))
        while day is not None and day < high and total <= limit:
            first = bisect_left(self.times, _minutes_up(low - day)) if low > day else 0
            last = bisect_left(self.times, _minutes_up(high - day))
            total += max(0, last - first)
            day = self.day_from(day + _DAY)
        return total


def _minutes_up(span: timedelta) -> int:
    """The span in whole minutes, rounded up."""
    return -(-span // MINUTE)
