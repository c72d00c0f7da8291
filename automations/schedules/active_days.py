"""Slots of a heartbeat whose interval is longer than its active hours: one slot every so many days (rule 5.1).

A grid of elapsed time might never fall into the active hours, or leave them with the next clock change. So days are
counted, and each slot lies at the opening of its day plus the agent's offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from automations.schedules.active_hours import ActiveHours
from automations.schedules.slots import count_one_by_one
from automations.schedules.zone_files import load_zone

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
        """As `Slots.next`."""
        try:
            day = self._day_at(after, -1)
            days = [day + number * self.days * DAY for number in range(_LOOKED_AT)]
        except OverflowError:
            return None
        return next((slot for each in days if (slot := self._slot(each)) and slot > after), None)

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """As `Slots.last`."""
        day = self._day_at(until, 1)
        days = [day - number * self.days * DAY for number in range(_LOOKED_AT)]
        slot = next((slot for each in days if (slot := self._slot(each)) and slot <= until), None)
        return slot if slot is not None and slot > after else None

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """As `Slots.count`."""
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
