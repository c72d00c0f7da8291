"""The interface of everything that has slots (rule 4.6), and slots limited by an end date or by active hours (5.1).

Slots are in UTC, on whole milliseconds. Each method raises ScheduleError when the zone's data are missing.

Active hours are wall time of the zone, so on the day of a clock change they may be shorter or longer. The first hour is
included, the last is not; they may wrap midnight.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

from automations.schedules.zone_files import load_zone

_STEP = timedelta(minutes=15)  # all current zone offsets are multiples of this
_TICK = timedelta(milliseconds=1)
_FARTHEST = timedelta(days=8 * 366)


class Slots(Protocol):
    """A schedule of any kind, alone or limited by hours, days or an end date."""

    def next(self, after: datetime) -> datetime | None:
        """The first slot later than `after`; None when there is none."""

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """The latest slot s with after < s <= until, or None. Its cost does not grow with the number of slots."""

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """How many slots s have after < s <= until; None when there are more than `limit`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndingSchedule:
    """The slots of another schedule up to `ends_at` (aware), inclusive."""

    slots: Slots
    ends_at: datetime

    def next(self, after: datetime) -> datetime | None:
        """See `Slots.next`."""
        slot = self.slots.next(after)
        return slot if slot is not None and slot <= self.ends_at else None

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """See `Slots.last`."""
        return self.slots.last(after, min(until, self.ends_at))

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """See `Slots.count`."""
        return self.slots.count(after, min(until, self.ends_at), limit)


class _CountedOneByOne:
    """Counts the slots by stepping through them."""

    __slots__ = ()

    def count(self: Slots, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """See `Slots.count`."""
        count, slot = 0, self.next(after)
        while slot is not None and slot <= until:
            count += 1
            if count > limit:
                return None
            slot = self.next(slot)
        return count


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveHours:
    """From hour `first` to hour `end` (0 to 24) in `timezone`; past midnight when `end` is less than `first`."""

    first: int
    end: int
    timezone: str

    def contain(self, instant: datetime) -> bool:
        """Whether the instant lies within these hours. ScheduleError when the zone has no data."""
        hour = instant.astimezone(load_zone(self.timezone)).hour
        if self.first < self.end:
            return self.first <= hour < self.end
        return hour >= self.first or hour < self.end

    def next_opening(self, instant: datetime) -> datetime:
        """The instant itself if it is active, else the first active one after it."""
        for number in range(4 * 24 * 3):
            moment = instant if number == 0 else _quarter(instant) + number * _STEP
            if self.contain(moment):
                return moment
        raise AssertionError("three days without an active hour")


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveSchedule(_CountedOneByOne):
    """The slots of another schedule that lie within active hours."""

    slots: Slots
    hours: ActiveHours

    def next(self, after: datetime) -> datetime | None:
        """See `Slots.next`; None when there is none within eight years."""
        slot, horizon = self.slots.next(after), after + _FARTHEST
        while slot is not None and slot <= horizon:
            if self.hours.contain(slot):
                return slot
            slot = self.slots.next(self.hours.next_opening(slot) - _TICK)
        return None

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """See `Slots.last`."""
        slot = self.slots.last(after, until)
        while slot is not None and not self.hours.contain(slot):
            slot = self.slots.last(after, _quarter(slot) - _TICK)
        return slot


def _quarter(instant: datetime) -> datetime:
    """The beginning of the instant's quarter of an hour."""
    return instant.replace(minute=instant.minute // 15 * 15, second=0, microsecond=0)


DAY = timedelta(days=1)
_LOOKED_AT = 16  # days to try; a day has no slot if a clock change removes its active hours


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveDays(_CountedOneByOne):
    """Every `days` days from `since` on: `offset` after the opening of `hours`, or at the opening."""

    hours: ActiveHours
    days: int
    since: date
    offset: timedelta

    def next(self, after: datetime) -> datetime | None:
        """See `Slots.next`."""
        try:
            day = self._day_at(after, -1)
            days = [day + number * self.days * DAY for number in range(_LOOKED_AT)]
        except OverflowError:
            return None
        return next((slot for each in days if (slot := self._slot(each)) and slot > after), None)

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """See `Slots.last`."""
        day = self._day_at(until, 1)
        days = [day - number * self.days * DAY for number in range(_LOOKED_AT)]
        slot = next((slot for each in days if (slot := self._slot(each)) and slot <= until), None)
        return slot if slot is not None and slot > after else None

    def _day_at(self, instant: datetime, steps: int) -> date:
        """The last day with a slot up to the instant's day, moved by so many steps of `days` days."""
        today = instant.astimezone(load_zone(self.hours.timezone)).date()
        behind = (today - self.since).days % self.days
        return today - behind * DAY + steps * self.days * DAY

    def _slot(self, day: date) -> datetime | None:
        first = day + (self.hours.first // 24) * DAY
        opening = datetime.combine(first, time(self.hours.first % 24), load_zone(self.hours.timezone))
        slot = opening.astimezone(UTC)
        if not self.hours.contain(slot):
            return None
        return slot + self.offset if self.hours.contain(slot + self.offset) else slot


def active_length(hours: ActiveHours) -> timedelta:
    """The length of a day's active hours, without clock changes."""
    return timedelta(hours=(hours.end - hours.first) % 24 or 24)
