"""For people: a job's schedule in words, the next slots of a schedule, and warnings about clock changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from automations.exceptions import ScheduleError
from automations.models import CronJob
from automations.schedules.cron_slots import moved_by
from automations.schedules.plan import schedule_of
from automations.schedules.schedule import AtSchedule, Schedule, WallSchedule
from automations.schedules.wall_time import TICK, Change, first_change
from automations.schedules.zone_files import load_zone, zone_or_utc

_YEAR = timedelta(days=366)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The next slots (aware, in the schedule's zone), the schedule in words, and warnings about clock changes."""

    next: tuple[datetime, ...]
    words: str
    warnings: tuple[str, ...]


def describe_job(job: CronJob, zone: str) -> str:
    """A job's schedule in words, or why it cannot be read. `zone`: for an instant."""
    try:
        return schedule_of(job).in_words(zone)
    except ScheduleError as error:
        return f"unreadable: {error}"


def instant_text(instant: datetime | None, zone: str) -> str:
    """`2027-01-01 09:00:00+01:00`, in the zone; `none` for None."""
    return "none" if instant is None else instant.astimezone(zone_or_utc(zone)).isoformat(" ", "seconds")


def preview(schedule: Schedule, after: datetime, count: int = 5, *, zone: str = "UTC") -> Preview:
    """The next `count` slots after `after`: an `every` in `zone`, an `at` as written, others in their own zone."""
    slots = _next_slots(schedule, after, count)
    shown = schedule.zone if isinstance(schedule, AtSchedule) else load_zone(_zone_name(schedule, zone))
    return Preview(
        next=tuple(slot.astimezone(shown) for slot in slots),
        words=schedule.in_words(),
        warnings=tuple(_warnings(schedule, slots)),
    )


def _zone_name(schedule: Schedule, zone: str) -> str:
    return schedule.timezone if isinstance(schedule, WallSchedule) else zone


def changes_ahead(schedule: Schedule, *, zone: str, after: datetime, shown_to: datetime) -> list[str]:
    """Sentences about the next two clock changes within a year, where they affect the schedule.

    A fixed time of day is affected when a change moves or doubles it. Other schedules are affected by changes up to
    `shown_to`, the last slot that people are shown. `zone`: for a schedule without its own zone.
    """
    name = _zone_name(schedule, zone)
    found: list[str] = []
    for _ in range(2):
        change = first_change(load_zone(name), after, after + _YEAR)
        if change is None:
            break
        found += _at_change(schedule, name, change, shown=change.at <= shown_to)
        after = change.at
    return found


def _at_change(schedule: Schedule, zone: str, change: Change, *, shown: bool) -> list[str]:
    if isinstance(schedule, WallSchedule) and schedule.fields.is_fixed:
        # a gap moves its times to its end; an overlap repeats the times before it
        begin = change.at if change.is_gap else change.at - (change.before - change.after)
        slot = schedule.next(begin - TICK)
        return [] if slot is None or slot > change.at else _warnings(schedule, [slot])
    if not shown or isinstance(schedule, AtSchedule):
        return []
    on = f"On {change.old_wall:%Y-%m-%d} the clocks go {'forward' if change.is_gap else 'back'} in {zone}"
    if isinstance(schedule, WallSchedule):
        return [f"{on}: this schedule follows elapsed time through the change."]
    if not (change.after - change.before) % timedelta(seconds=schedule.seconds):
        return []  # the interval keeps its times of day
    return [f"{on}: this interval is elapsed time, so its times of day move."]


def _next_slots(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    slots: list[datetime] = []
    while len(slots) < count:
        slot = schedule.next(slots[-1] if slots else after)
        if slot is None:
            break
        slots.append(slot)
    return slots


def _warnings(schedule: Schedule, slots: list[datetime]) -> list[str]:
    """Sentences about slots of a fixed time of day that a clock change moves or doubles."""
    if not isinstance(schedule, WallSchedule):
        return []
    fields, zone = schedule.fields, load_zone(schedule.timezone)
    found = ((slot, moved_by(fields, zone, slot)) for slot in slots)
    return [_warning(schedule.timezone, slot.astimezone(zone), *moved) for slot, moved in found if moved]


def _warning(zone: str, slot: datetime, change: Change, asked: datetime) -> str:
    day, time = asked.strftime("%Y-%m-%d"), asked.strftime("%H:%M")
    if change.is_gap:
        run = slot.strftime("%H:%M" if slot.date() == asked.date() else "%Y-%m-%d %H:%M")
        return f"On {day} the clocks go forward in {zone}: there is no {time}, it runs at {run} instead."
    return f"On {day} the clocks go back in {zone}: {time} comes twice, it runs the first time only."
