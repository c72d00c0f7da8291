"""The interface of everything that has slots (rule 4.6), slots up to an end date, and the error of all schedules.

Slots are in UTC, on whole milliseconds. Each method raises ScheduleError when the zone's data are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol


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


def count_one_by_one(slots: Slots, after: datetime, until: datetime, limit: int) -> int | None:
    """Count slots s with after < s <= until by stepping through them; None when there are more than `limit`."""
    count, slot = 0, slots.next(after)
    while slot is not None and slot <= until:
        count += 1
        if count > limit:
            return None
        slot = slots.next(slot)
    return count


ScheduleCode = Literal[
    "bad_schedule", "bad_cron", "never_fires", "unknown_timezone", "past_at", "bad_interval", "bad_time"
]


class ScheduleError(ValueError):
    """The schedule is invalid. `code` is stable; `message` is a sentence for the person who wrote the schedule."""

    def __init__(self, code: ScheduleCode, message: str) -> None:
        super().__init__(message)
        self.code: ScheduleCode = code
        self.message = message
