"""A schedule in words, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from automations.cron_slots import moved_by
from automations.cron_words import cron_words
from automations.schedule import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Schedule,
    cron_fields,
    next_slot,
)
from automations.zones import Change, load_zone

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The next slots (aware, in the schedule's zone), the schedule in words, and zone-change warnings."""

    next: tuple[datetime, ...]
    words: str
    warnings: tuple[str, ...]


def describe(schedule: Schedule, *, zone: str = "UTC") -> str:
    """The schedule in words. Cron speaks in its own zone, `at` in `zone` (the agent's)."""
    if isinstance(schedule, CronSchedule):
        words = cron_words(schedule.expr) or f"cron `{schedule.expr}`"
        return f"{words} ({schedule.timezone})"
    if isinstance(schedule, EverySchedule):
        return _interval(schedule.seconds)
    return f"once at {_reading(schedule, zone)} ({zone})"


def _reading(schedule: AtSchedule, zone: str) -> str:
    """`2027-01-01 09:00`, with seconds where there are any."""
    local = schedule.at.astimezone(load_zone(zone))
    return local.strftime("%Y-%m-%d %H:%M:%S" if local.second else "%Y-%m-%d %H:%M")


def _interval(seconds: int) -> str:
    """Elapsed time in its largest whole unit. One day is 24 hours: it does not follow the clocks."""
    if seconds == _UNITS[0][0]:
        return "every 24 hours"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    count = seconds // size
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def preview(schedule: Schedule, after: datetime, count: int = 5, *, zone: str = "UTC") -> Preview:
    """The next `count` slots after `after`, read in cron's own zone, or for `every` and `at` in `zone`."""
    shown = load_zone(schedule.timezone if isinstance(schedule, CronSchedule) else zone)
    slots = _next_slots(schedule, after, count)
    return Preview(
        next=tuple(slot.astimezone(shown) for slot in slots),
        words=describe(schedule, zone=zone),
        warnings=tuple(_warnings(schedule, slots)),
    )


def warnings(schedule: Schedule, *, after: datetime, count: int) -> list[str]:
    """Sentences about those of the next `count` slots that a change of the clocks moves or doubles."""
    return _warnings(schedule, _next_slots(schedule, after, count))


def _next_slots(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    slots: list[datetime] = []
    while len(slots) < count:
        slot = next_slot(schedule, slots[-1] if slots else after)
        if slot is None:
            break
        slots.append(slot)
    return slots


def _warnings(schedule: Schedule, slots: list[datetime]) -> list[str]:
    """Only fixed wall times are moved; what follows elapsed time is not."""
    if not isinstance(schedule, CronSchedule):
        return []
    fields, zone = cron_fields(schedule.expr), load_zone(schedule.timezone)
    found = ((slot, moved_by(fields, zone, slot)) for slot in slots)
    return [_warning(schedule.timezone, slot.astimezone(zone), *moved) for slot, moved in found if moved]


def _warning(zone: str, slot: datetime, change: Change, asked: datetime) -> str:
    day, time = asked.strftime("%Y-%m-%d"), asked.strftime("%H:%M")
    if change.is_gap:
        run = slot.strftime("%H:%M" if slot.date() == asked.date() else "%Y-%m-%d %H:%M")
        return f"On {day} the clocks go forward in {zone}: there is no {time}, it runs at {run} instead."
    return f"On {day} the clocks go back in {zone}: {time} comes twice, it runs the first time only."
