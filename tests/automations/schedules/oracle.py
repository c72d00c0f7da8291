"""Rule 4.6 a second time, slowly: every minute of a window is looked at. Used to judge the fast arithmetic."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS

MINUTE = timedelta(minutes=1)
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


def slots(expr: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """All slots with after < slot <= until."""
    sim = sim_of(expr, datetime(2026, 1, 1))  # noqa: DTZ001 - wall time
    tz = ZoneInfo(zone)
    find = _fixed if is_fixed(expr) else _elapsed
    return sorted({slot for slot in find(sim, tz, after, until) if after < slot <= until})


def _elapsed(sim: CronSim, tz: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every instant whose wall time is named."""
    instant = after.replace(second=0, microsecond=0)
    while instant <= until:
        if _named(sim, instant.astimezone(tz).replace(tzinfo=None)):
            yield instant
        instant += MINUTE


def _fixed(sim: CronSim, tz: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every named wall time once: the first of two, or the first minute that exists after it."""
    day = timedelta(days=2)  # a gap may be a whole day
    wall = (after.astimezone(tz).replace(tzinfo=None) - day).replace(second=0, microsecond=0)
    end = until.astimezone(tz).replace(tzinfo=None) + day
    while wall <= end:
        if _named(sim, wall):
            yield _first_existing(tz, wall)
        wall += MINUTE


def _first_existing(tz: ZoneInfo, wall: datetime) -> datetime:
    while True:
        instant = wall.replace(tzinfo=tz, fold=0).astimezone(UTC)
        if instant.astimezone(tz).replace(tzinfo=None) == wall:
            return instant
        wall += MINUTE
