"""The hours of a day in which an agent is active, and the slots of a schedule that lie within them (rule 5.1).

The first hour counts, the last does not; a day may end after midnight. Hours are those on the wall of the zone at
the instant itself, so a day that changes its clocks is shorter or longer like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from automations.zone_files import load_zone

_STEP = timedelta(minutes=15)  # no zone's hour begins within a quarter of an hour of UTC
_TICK = timedelta(milliseconds=1)
_FARTHEST = timedelta(days=8 * 366)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveHours:
    """From `first` to `end` o'clock (0 to 24) in `timezone`; with `end` before `first` over midnight."""

    first: int
    end: int
    timezone: str

    def hold(self, instant: datetime) -> bool:
        """Whether the instant lies within. ScheduleError when the zone is gone."""
        hour = instant.astimezone(load_zone(self.timezone)).hour
        if self.first < self.end:
            return self.first <= hour < self.end
        return hour >= self.first or hour < self.end

    def next_opening(self, instant: datetime) -> datetime:
        """The instant itself while active, else the first one after it that is."""
        for number in range(4 * 24 * 3):
            moment = instant if number == 0 else _quarter(instant) + number * _STEP
            if self.hold(moment):
                return moment
        raise AssertionError("three days without an active hour")


def next_within(
    hours: ActiveHours, slot_after: Callable[[datetime], datetime | None], after: datetime
) -> datetime | None:
    """The first slot later than `after` within the hours; None: none in eight years."""
    slot, horizon = slot_after(after), after + _FARTHEST
    while slot is not None and slot <= horizon:
        if hours.hold(slot):
            return slot
        slot = slot_after(hours.next_opening(slot) - _TICK)
    return None


def last_within(
    hours: ActiveHours,
    last_slot: Callable[[datetime, datetime], datetime | None],
    after: datetime,
    until: datetime,
) -> datetime | None:
    """The latest slot s within the hours with after < s <= until."""
    slot = last_slot(after, until)
    while slot is not None and not hours.hold(slot):
        slot = last_slot(after, _quarter(slot) - _TICK)
    return slot


def count_within(
    slot_after: Callable[[datetime], datetime | None], after: datetime, until: datetime, limit: int
) -> int | None:
    """How many slots s have after < s <= until, one by one; None when there are more than `limit`."""
    count, slot = 0, slot_after(after)
    while slot is not None and slot <= until:
        count += 1
        if count > limit:
            return None
        slot = slot_after(slot)
    return count


def _quarter(instant: datetime) -> datetime:
    """The quarter of an hour that the instant lies in."""
    return instant.replace(minute=instant.minute // 15 * 15, second=0, microsecond=0)
