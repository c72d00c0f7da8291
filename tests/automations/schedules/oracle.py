"""Rule 4.6 a second time, slowly: every minute of a window is looked at. Used to judge the fast arithmetic."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

import holidays
from cronsim import CronSim
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS
from dateutil.rrule import rruleset, rrulestr

from automations.schedules.schedule import CronSchedule, RuleSchedule

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
Named = Callable[[datetime], bool]  # whether a wall time is one
ZONES = sorted(available_timezones() - {"Factory", "localtime"})
ODD_ZONES = (
    *("Africa/Cairo", "Africa/Casablanca", "America/Havana", "America/New_York", "America/Santiago"),
    *("America/St_Johns", "Antarctica/Troll", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Tehran"),
    *("Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin", "Europe/London", "Pacific/Apia"),
    *("Pacific/Chatham", "UTC"),
)


class Walkable(Protocol):
    """Whatever has slots."""

    def next(self, after: datetime) -> datetime | None: ...


def walked(schedule: Walkable, after: datetime, until: datetime) -> list[datetime]:
    """Its slots with after < slot <= until, one after the other."""
    found, slot = [], schedule.next(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = schedule.next(slot)
    return found


def sim_of(expr: str, wall: datetime, *, reverse: bool = False) -> CronSim:
    """cronsim for an expression. It has no ranges that wrap and no `L5`: they are written as lists and as `5L`."""
    minute, hour, day, month, weekday = expr.upper().replace("?", "*").split()
    months = _unwrapped(month, SYMBOLIC_MONTHS, 1)
    weekdays = re.sub(r"\bL([0-7])", r"\1L", _unwrapped(weekday, SYMBOLIC_DAYS, 0))
    return CronSim(f"{minute} {hour} {day} {months} {weekdays}", wall, reverse=reverse)


def _unwrapped(field: str, names: list[str], base: int) -> str:
    for number, name in enumerate(names, base):
        field = re.sub(rf"\b{name}\b", str(number), field)
    return re.sub(r"(\d+)-(\d+)(?:/(\d+))?", lambda found: _counted(found, len(names), base), field)


def _counted(found: re.Match[str], size: int, base: int) -> str:
    low, high, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if low < high:
        return found[0]
    walk = [low]
    while walk[-1] % size != high % size:
        walk.append((walk[-1] - base + 1) % size + base)
    return ",".join(map(str, walk[::step]))


def _named(sim: CronSim, wall: datetime) -> bool:
    named = (wall.minute in sim.minutes, wall.hour in sim.hours, wall.month in sim.months)
    return all(named) and wall.second == 0 and sim.match_day(wall.date())


def is_fixed(expr: str) -> bool:
    minute, hour, *_ = expr.split()
    return not minute.startswith("*") and not hour.startswith("*")


def slots(schedule: CronSchedule | RuleSchedule, after: datetime, until: datetime) -> list[datetime]:
    """All slots with after < slot <= until."""
    tz, excepted = ZoneInfo(schedule.timezone), schedule.excepted
    if isinstance(schedule, CronSchedule):
        sim = sim_of(schedule.expr, datetime(2026, 1, 1))  # noqa: DTZ001 - wall time
        find = _fixed if is_fixed(schedule.expr) else _elapsed
        found = find(lambda wall: _named(sim, wall), tz, after, until)
    else:
        rule = dateutils(schedule.rule, schedule.starts_at)
        low, high = (each.astimezone(tz).replace(tzinfo=None) for each in (after - 3 * DAY, until + 3 * DAY))
        named = rule.between(low, high)
        found = _fixed(set(named).__contains__, tz, after, until)
    country, _, part = excepted.holidays.partition("-")
    free = holidays.country_holidays(country, subdiv=part or None) if country else {}
    days = {slot: slot.astimezone(tz).date() for slot in found if after < slot <= until}
    return sorted(slot for slot, day in days.items() if day not in excepted.dates and day not in free)


def dateutils(rule: str, start: datetime) -> rruleset:
    """dateutil's own walk from the start. It takes a day without a time for its first instant."""
    rule = re.sub(r"(UNTIL=[0-9]{8})(?!T)", r"\1T235900", rule)
    return rrulestr(rule, dtstart=start, forceset=True)


def _elapsed(named: Named, tz: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every instant whose wall time is named."""
    instant = after.replace(second=0, microsecond=0)
    while instant <= until:
        if named(instant.astimezone(tz).replace(tzinfo=None)):
            yield instant
        instant += MINUTE


def _fixed(named: Named, tz: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every named wall time once: the first of two, or the first minute that exists after it."""
    wall = (after.astimezone(tz).replace(tzinfo=None) - 2 * DAY).replace(second=0, microsecond=0)
    end = until.astimezone(tz).replace(tzinfo=None) + 2 * DAY  # a gap may be a whole day
    while wall <= end:
        if named(wall):
            yield _first_existing(tz, wall)
        wall += MINUTE


def _first_existing(tz: ZoneInfo, wall: datetime) -> datetime:
    while True:
        instant = wall.replace(tzinfo=tz, fold=0).astimezone(UTC)
        if instant.astimezone(tz).replace(tzinfo=None) == wall:
            return instant
        wall += MINUTE
