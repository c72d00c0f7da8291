"""The slots of a cron expression, or of a recurrence rule, in a zone (rule 4.6).

As in Vixie cron, there are two kinds of expression; a rule is a fixed one:

* Fixed (neither minute nor hour begins with `*`): each matching wall time runs once. All times in a gap run once, at
  the first instant after the gap. A time in an overlap runs the first time only.
* Elapsed (the minute or the hour begins with `*`): every instant whose wall time matches is a slot. Times in a gap are
  left out, and an overlap is walked through twice, so `*/30 * * * *` runs every half hour of real time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from automations.schedules.day_times import DayTimes
from automations.schedules.wall_time import (
    TICK,
    Change,
    first_change,
    instant_of,
    last_change,
    offset_at,
    wall_at,
)


def next_cron(fields: DayTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first slot later than `after` (UTC)."""
    if fields.is_fixed:
        wall = fields.after(_fixed_wall(zone, after))
        return None if wall is None else instant_of(zone, wall)
    return _next_elapsed(fields, zone, after)


def last_cron(fields: DayTimes, zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The latest slot with after < slot <= until (UTC)."""
    if fields.is_fixed:
        wall = fields.until(_fixed_wall(zone, until))
        slot = None if wall is None else instant_of(zone, wall)
    else:
        slot = _last_elapsed(fields, zone, after, until)
    return slot if slot is not None and slot > after else None


def count_cron(fields: DayTimes, zone: ZoneInfo, after: datetime, until: datetime, limit: int) -> int:
    """How many slots have after < slot <= until (UTC). A result above `limit` means more than `limit`."""
    total = 0
    start, wall = after, _fixed_wall(zone, after) if fields.is_fixed else wall_at(zone, after)
    low = wall + TICK  # inclusive
    while total <= limit:
        change = first_change(zone, start, until)
        if change is None:
            break
        total += fields.count(low, change.old_wall, limit)
        low, extra = _count_from(fields, change)
        total += extra
        start = change.at
    high = _fixed_wall(zone, until) if fields.is_fixed else wall_at(zone, until)
    return total if total > limit else total + fields.count(low, high + TICK, limit)


def _count_from(fields: DayTimes, change: Change) -> tuple[datetime, int]:
    """The wall time from which counting goes on after a change, and the number of slots at the change itself."""
    if not fields.is_fixed:
        return change.new_wall, 0
    if not change.is_gap:
        return change.old_wall, 0  # the second pass of an overlap has no fixed slots
    in_gap = fields.count(change.old_wall, change.new_wall + TICK, 1)  # the gap's end coincides with them
    return change.new_wall + TICK, min(in_gap, 1)


def _fixed_wall(zone: ZoneInfo, instant: datetime) -> datetime:
    """The latest wall time whose fixed slot is not later than `instant`."""
    local = instant.astimezone(zone)
    if local.fold == 1:  # the second pass of an overlap: all its times ran in the first one
        change = last_change(zone, instant - timedelta(days=2), instant)
        if change is not None and not change.is_gap:
            return change.old_wall - TICK
    return local.replace(tzinfo=None, fold=0)


def _next_elapsed(fields: DayTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    start, offset, wall = after, offset_at(zone, after), wall_at(zone, after)
    while True:
        named = fields.after(wall)
        if named is None:
            return None
        slot = (named - offset).replace(tzinfo=UTC)
        change = first_change(zone, start, slot)
        if change is None:
            return slot
        start, offset, wall = change.at, change.after, change.new_wall - TICK


def _last_elapsed(fields: DayTimes, zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    end, offset, wall = until, offset_at(zone, until), wall_at(zone, until)
    while end > after:
        named = fields.until(wall)
        if named is None:
            return None
        slot = (named - offset).replace(tzinfo=UTC)
        change = last_change(zone, max(slot, after), end)
        if change is None:
            return slot
        end, offset, wall = change.at - TICK, change.before, change.old_wall - TICK
    return None


def moved_by(fields: DayTimes, zone: ZoneInfo, slot: datetime) -> tuple[Change, datetime] | None:
    """The clock change that moved or doubled a fixed slot, and the wall time in the expression; None: none did."""
    if not fields.is_fixed:
        return None
    change = last_change(zone, slot - TICK, slot)
    if change is not None and change.is_gap:
        asked = fields.after(change.old_wall - TICK)
        return (change, asked) if asked is not None and asked < change.new_wall else None
    wall = wall_at(zone, slot)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    change = first_change(zone, slot, second) if second > slot else None
    return (change, wall) if change else None
