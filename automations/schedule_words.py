"""A schedule in words, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

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
from automations.zone_files import load_zone
from automations.zones import TICK, Change, first_change

_YEAR = timedelta(days=366)
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The next slots (aware, in the schedule's zone), the schedule in words, and zone-change warnings."""

    next: tuple[datetime, ...]
    words: str
    warnings: tuple[str, ...]


def describe(schedule: Schedule, *, zone: str | None = None) -> str:
    """The schedule in words. Cron speaks in its own zone, `at` in `zone` (the job's) or as it was written."""
    if isinstance(schedule, CronSchedule):
        words = cron_words(schedule.expr) or f"cron `{schedule.expr}`"
        return f"{words} ({schedule.timezone})"
    if isinstance(schedule, EverySchedule):
        return _interval(schedule.seconds)
    return _once(schedule.at.astimezone(schedule.zone if zone is None else load_zone(zone)))


def _once(local: datetime) -> str:
    """`once at 2027-01-01 09:00 (Europe/Berlin)`, with seconds where there are any; a bare offset as it is."""
    zone = getattr(local.tzinfo, "key", None) or ("UTC" if not local.utcoffset() else local.isoformat()[-6:])
    return f"once at {local.strftime('%Y-%m-%d %H:%M:%S' if local.second else '%Y-%m-%d %H:%M')} ({zone})"


def _interval(seconds: int) -> str:
    """Elapsed time in its largest whole unit. One day is 24 hours: it does not follow the clocks."""
    if seconds == _UNITS[0][0]:
        return "every 24 hours"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    count = seconds // size
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def preview(schedule: Schedule, after: datetime, count: int = 5, *, zone: str = "UTC") -> Preview:
    """The next `count` slots after `after`: in cron's own zone, as an `at` was written, for `every` in `zone`."""
    slots = _next_slots(schedule, after, count)
    shown = schedule.zone if isinstance(schedule, AtSchedule) else load_zone(_zone(schedule, zone))
    return Preview(
        next=tuple(slot.astimezone(shown) for slot in slots),
        words=describe(schedule),
        warnings=tuple(_warnings(schedule, slots)),
    )


def _zone(schedule: CronSchedule | EverySchedule, zone: str) -> str:
    return schedule.timezone if isinstance(schedule, CronSchedule) else zone


def warnings(schedule: Schedule, *, after: datetime, count: int) -> list[str]:
    """Sentences about those of the next `count` slots that a change of the clocks moves or doubles."""
    return _warnings(schedule, _next_slots(schedule, after, count))


def changes_ahead(schedule: Schedule, *, zone: str, after: datetime, shown_to: datetime) -> list[str]:
    """Sentences about the next two changes of the clocks within a year.

    Of a fixed time that one of them moves or doubles; of other schedules only up to `shown_to`, where the slots
    that people are shown end. `zone`: that of a schedule which has none of its own.
    """
    name = schedule.timezone if isinstance(schedule, CronSchedule) else zone
    found: list[str] = []
    for _ in range(2):
        change = first_change(load_zone(name), after, after + _YEAR)
        if change is None:
            break
        found += _at_change(schedule, name, change, shown=change.at <= shown_to)
        after = change.at
    return found


def _at_change(schedule: Schedule, zone: str, change: Change, *, shown: bool) -> list[str]:
    if isinstance(schedule, CronSchedule) and cron_fields(schedule.expr).is_fixed:
        # a gap moves its times to its end; an overlap doubles those of the time before it that comes again
        begin = change.at if change.is_gap else change.at - (change.before - change.after)
        slot = next_slot(schedule, begin - TICK)
        return [] if slot is None or slot > change.at else _warnings(schedule, [slot])
    if not shown or isinstance(schedule, AtSchedule):
        return []
    on = f"On {change.old_wall:%Y-%m-%d} the clocks go {'forward' if change.is_gap else 'back'} in {zone}"
    if isinstance(schedule, CronSchedule):
        return [f"{on}: this schedule follows elapsed time through the change."]
    if not (change.after - change.before) % timedelta(seconds=schedule.seconds):
        return []  # the same times of day as before
    return [f"{on}: this interval is elapsed time, so its times of day move."]


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
