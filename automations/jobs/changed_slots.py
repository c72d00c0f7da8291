"""The slots of a plan after a person has moved some of them, without those that lie in a pause to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from automations.runs.skips import TICK
from automations.schedules.slots import Slots


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedSlots:
    """The slots of another plan. `moved`: a slot, or where one was moved before, to its instant of now.

    `pause`: from its first instant to before its last one there are no slots; None: there is no pause.
    """

    slots: Slots
    moved: Mapping[datetime, datetime]
    pause: tuple[datetime, datetime] | None

    def next(self, after: datetime) -> datetime | None:
        """See `Slots.next`."""
        slot = self.slots.next(after)
        while slot is not None and slot in self.moved:
            slot = self.slots.next(slot)
        found = min((each for each in (slot, *self._added()) if each and each > after), default=None)
        if found is None or self.pause is None or not self.pause[0] <= found < self.pause[1]:
            return found
        return self.next(self.pause[1] - TICK)

    def last(self, after: datetime, until: datetime) -> datetime | None:
        """See `Slots.last`."""
        slot = self.slots.last(after, until)
        while slot is not None and slot in self.moved:
            slot = self.slots.last(after, slot - TICK)
        found = max((each for each in (slot, *self._added()) if each and after < each <= until), default=None)
        if found is None or self.pause is None or not self.pause[0] <= found < self.pause[1]:
            return found
        return self.last(after, self.pause[0] - TICK)

    def count(self, after: datetime, until: datetime, limit: int = 1000) -> int | None:
        """See `Slots.count`."""
        parts = [(after, until)]
        if self.pause is not None:
            parts = [(after, min(until, self.pause[0] - TICK)), (max(after, self.pause[1] - TICK), until)]
        counts = [self._count(*part, limit) for part in parts if part[0] < part[1]]
        return None if None in counts or sum(filter(None, counts)) > limit else sum(filter(None, counts))

    def _count(self, after: datetime, until: datetime, limit: int) -> int | None:
        """The count of a range without a pause."""
        count = self.slots.count(after, until, limit + len(self.moved))
        if count is None:
            return None
        gone = [each for each in self.moved if after < each <= until and self._is_planned(each)]
        come = {each for each in self._added() if after < each <= until and not self._is_planned(each)}
        return count - len(gone) + len(come)

    def _added(self) -> list[datetime]:
        """The instants to which slots were moved, and which were not moved on."""
        return [each for each in self.moved.values() if each not in self.moved]

    def _is_planned(self, slot: datetime) -> bool:
        return self.slots.next(slot - TICK) == slot
