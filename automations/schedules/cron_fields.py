"""Five cron fields on naive wall time, without a zone: which minutes match."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime, time, timedelta

from automations.schedules.cron_days import days_of
from automations.schedules.cron_expr import expand, read_expr

MOST_MONTHS = 50 * 12  # that are searched for a matching day
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


class CronFields:
    """The minutes that an expression matches, on naive wall time. Immutable, so it may be shared between threads.

    All matching days have the same minutes. ScheduleError bad_cron or never_fires.
    """

    def __init__(self, expr: str) -> None:
        normal = read_expr(expr)
        minute, hour, *_ = normal.split()
        minutes, hours, self._days = expand(normal)
        self._times = tuple(60 * hour + minute for hour in hours for minute in minutes)  # of a day, ascending
        # As in Vixie cron: a fixed time, unless the minute or the hour begins with a star.
        self.is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def after(self, wall: datetime) -> datetime | None:
        """The first matching minute later than `wall`; None when there is none within 50 years."""
        midnight = datetime.combine(wall.date(), time())
        day = self._day_from(midnight)
        if day == midnight:
            index = bisect_right(self._times, (wall - midnight) // _MINUTE)
            if index < len(self._times):
                return day + self._times[index] * _MINUTE
            day = self._day_from(midnight + _DAY)
        return None if day is None else day + self._times[0] * _MINUTE

    def until(self, wall: datetime) -> datetime | None:
        """The last matching minute not later than `wall`; None when there is none within 50 years."""
        midnight = datetime.combine(wall.date(), time())
        day = self._day_until(midnight)
        if day == midnight:
            index = bisect_right(self._times, (wall - midnight) // _MINUTE)
            if index > 0:
                return day + self._times[index - 1] * _MINUTE
            day = self._day_until(midnight - _DAY)
        return None if day is None else day + self._times[-1] * _MINUTE

    def count(self, low: datetime, high: datetime, limit: int) -> int:
        """The number of matching minutes with low <= minute < high. Counting stops above `limit`.

        It counts by days, so that an expression that matches every minute stays cheap over years.
        """
        total = 0
        day = self._day_from(datetime.combine(low.date(), time()))
        while day is not None and day < high and total <= limit:
            first = bisect_left(self._times, _minutes_up(low - day)) if low > day else 0
            last = bisect_left(self._times, _minutes_up(high - day))
            total += max(0, last - first)
            day = self._day_from(day + _DAY)
        return total

    def _day_from(self, midnight: datetime) -> datetime | None:
        """The first matching day from `midnight` on."""
        floor = midnight.day
        for number in range(MOST_MONTHS + 1):
            year, month = _month(midnight, number)
            if year > 9999:
                return None
            days = days_of(self._days, year, month)
            if (place := bisect_left(days, floor)) < len(days):
                return datetime(year, month, days[place])  # noqa: DTZ001 - wall time
            floor = 1
        return None

    def _day_until(self, midnight: datetime) -> datetime | None:
        """The last matching day up to `midnight`, inclusive."""
        ceiling = midnight.day
        for number in range(MOST_MONTHS + 1):
            year, month = _month(midnight, -number)
            if year < 1:
                return None
            days = days_of(self._days, year, month)
            if place := bisect_right(days, ceiling):
                return datetime(year, month, days[place - 1])  # noqa: DTZ001 - wall time
            ceiling = 31
        return None


def _month(start: datetime, months: int) -> tuple[int, int]:
    """The year and month, some months later."""
    year, month = divmod(12 * start.year + start.month - 1 + months, 12)
    return year, month + 1


def _minutes_up(span: timedelta) -> int:
    """The span in whole minutes, rounded up."""
    return -(-span // _MINUTE)
