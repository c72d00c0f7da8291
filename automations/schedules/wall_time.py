"""Time-zone arithmetic with the standard library: clock changes, and wall time to instant (rule 4.6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

TICK = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A clock change at the instant `at` (UTC): the offset from UTC is `before` until then and `after` from then on."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        """True if wall times are left out, False if they repeat."""
        return self.after > self.before

    @property
    def old_wall(self) -> datetime:
        """The naive wall time at `at` by the old offset."""
        return naive_utc(self.at) + self.before

    @property
    def new_wall(self) -> datetime:
        """The naive wall time at `at` by the new offset."""
        return naive_utc(self.at) + self.after


def as_utc(instant: datetime) -> datetime:
    """The instant in UTC. Raises ValueError for a naive one, OverflowError beyond the year 9999."""
    if instant.tzinfo is UTC:
        return instant
    if instant.utcoffset() is None:
        raise ValueError("an aware datetime is needed")
    return instant.astimezone(UTC)


def naive_utc(instant: datetime) -> datetime:
    """The instant in UTC as a naive datetime."""
    return instant.astimezone(UTC).replace(tzinfo=None)


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """The zone's offset from UTC at the instant."""
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def wall_at(zone: ZoneInfo, instant: datetime) -> datetime:
    """The naive wall time of the zone at the instant."""
    return instant.astimezone(zone).replace(tzinfo=None)


def instant_of(zone: ZoneInfo, wall: datetime) -> datetime:
    """The instant of a wall time: the first of two in an overlap; in a gap, the first instant after it."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if wall_at(zone, first) == wall:
        return first
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # in a gap: before the change, `first` after
    change = first_change(zone, second, first)
    return change.at if change else first


def instant_ahead(zone: ZoneInfo, wall: datetime, now: datetime) -> datetime:
    """Return what `instant_of` does, but the second of two repeated times after the first has passed."""
    first = instant_of(zone, wall)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # in a gap: before `first`
    return second if first <= now < second else first


def first_change(zone: ZoneInfo, after: datetime, until: datetime) -> Change | None:
    """The first change with after < at <= until."""
    for year in range(after.year, until.year + 1):
        for change in _changes(zone, year):
            if after < change.at <= until:
                return change
    return None


def last_change(zone: ZoneInfo, after: datetime, until: datetime) -> Change | None:
    """The last change with after < at <= until."""
    for year in range(until.year, after.year - 1, -1):
        for change in reversed(_changes(zone, year)):
            if after < change.at <= until:
                return change
    return None


@lru_cache(maxsize=4096)
def _changes(zone: ZoneInfo, year: int) -> tuple[Change, ...]:
    """The changes with new year < at <= next new year (UTC), ascending.

    The library has no table of changes. Comparing the offsets of consecutive days finds all of them, because since
    1970 no two changes of a zone are less than six days apart.
    """
    found = []
    day = datetime(year, 1, 1, tzinfo=UTC)
    offset = offset_at(zone, day)
    while day.year == year:
        following = day + timedelta(days=1)
        new_offset = offset_at(zone, following)
        if new_offset != offset:
            found.append(Change(at=_change_between(zone, day, following), before=offset, after=new_offset))
        day, offset = following, new_offset
    return tuple(found)


def _change_between(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The instant of the one change with low < at <= high, to the second."""
    offset = offset_at(zone, low)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        if offset_at(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high
