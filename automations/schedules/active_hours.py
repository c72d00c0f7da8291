"""An agent's active hours, and the slots of a schedule or one every so many days within them (rule 5.1).

The first hour is included, the last is not; the hours may wrap midnight. They are wall time of the zone, so on the day
of a clock change they may be shorter or longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from automations.schedules.slots import Slots, count_one_by_one
from automations.schedules.zone_files import load_zone

_STEP = timedelta(minutes=15)  # all current zone offsets are multiples of this
_TICK = timedelta(milliseconds=1)
_FARTHEST = timedelta(days=8 * 366)


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
class ActiveSchedule:
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

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """See `Slots.count`."""
        return count_one_by_one(self, after, until, limit)


def _quarter(instant: datetime) -> datetime:
    """The beginning of the instant's quarter of an hour."""
    return instant.replace(minute=instant.minute // 15 * 15, second=0, microsecond=0)


DAY = timedelta(days=1)
_LOOKED_AT = 16  # days to try; a day has no slot if a clock change removes its active hours


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveDays:
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

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """See `Slots.count`."""
        return count_one_by_one(self, after, until, limit)

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
