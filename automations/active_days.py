"""Slots of a heartbeat whose interval is longer than its active hours: one each so many days (rule 5.1).

A grid of elapsed time might never meet the hours, or lose them with the next change of the clocks. So the days are
counted instead, and each slot lies at its day's opening plus what is the agent's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from automations.active_hours import ActiveHours
from automations.zone_files import load_zone

DAY = timedelta(days=1)
_LOOKED_AT = 16  # days of the plan; a day that its clocks rob of its hours has no slot


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveDays:
    """Every `days` days, `since` being one of them: `offset` after the opening of `hours`, or at it."""

    hours: ActiveHours
    days: int
    since: date
    offset: timedelta

    def next(self, after: datetime) -> datetime | None:
        """The first slot later than `after`. ScheduleError when the zone is gone."""
        try:
            day = self._day_at(after, -1)
            days = [day + number * self.days * DAY for number in range(_LOOKED_AT)]
        except OverflowError:
            return None
        return next((slot for each in days if (slot := self._slot(each)) and slot > after), None)

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """The latest slot s with after < s <= until."""
        day = self._day_at(until, 1)
        days = [day - number * self.days * DAY for number in range(_LOOKED_AT)]
        slot = next((slot for each in days if (slot := self._slot(each)) and slot <= until), None)
        return slot if slot is not None and slot > after else None

    def _day_at(self, instant: datetime, beside: int) -> date:
        """A day of the plan at the instant's own or, with `beside`, at the plan's day before or after it."""
        today = instant.astimezone(load_zone(self.hours.timezone)).date()
        behind = (today - self.since).days % self.days
        return today - behind * DAY + beside * self.days * DAY

    def _slot(self, day: date) -> datetime | None:
        first = day + (self.hours.first // 24) * DAY
        opening = datetime.combine(first, time(self.hours.first % 24), load_zone(self.hours.timezone))
        slot = opening.astimezone(UTC)
        if not self.hours.hold(slot):
            return None
        return slot + self.offset if self.hours.hold(slot + self.offset) else slot


def window(hours: ActiveHours) -> timedelta:
    """How long the active hours of a day are, but for a change of the clocks."""
    return timedelta(hours=(hours.end - hours.first) % 24 or 24)
