"""The days on which a schedule has no slots: single dates, and the public holidays of a country (rule 4.6).

The holidays are those of the package `holidays`, which is optional. It is asked for nothing but what it computes.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from automations.exceptions import ScheduleError
from automations.models.job import MOST_DATES
from automations.schedules.wall_time import TICK, first_change, instant_of, last_change, wall_at

KEYS = frozenset({"except", "except_holidays"})  # of a schedule
_NAMED_DATES = 3  # more have no words of their own
_PLACE = re.compile(r"(?P<country>[A-Z]{2})(-(?P<part>[A-Za-z0-9]{1,8}))?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExceptedDays:
    """The `dates`, ascending, and the public holidays of a country (`DE`) or a part of one (`DE-BY`)."""

    dates: tuple[date, ...] = ()
    holidays: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys of the API's JSON, without those that are empty."""
        dates = {"except": [each.isoformat() for each in self.dates]} if self.dates else {}
        return dates | ({"except_holidays": self.holidays} if self.holidays else {})

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a job's columns, without those that are empty."""
        dates = {"except_dates": list(self.dates)} if self.dates else {}
        return dates | ({"except_holidays": self.holidays} if self.holidays else {})

    def in_words(self) -> str:
        """` except on public holidays in Germany and on 24 Dec 2026`; empty if no day is excepted."""
        if not self.dates and not self.holidays:
            return ""
        named = self.dates[: _NAMED_DATES if len(self.dates) > _NAMED_DATES else None]
        words = [f"{each.day} {each:%b %Y}" for each in named]
        if more := len(self.dates) - len(named):
            words.append(f"{more} more day{'s' if more > 1 else ''}")
        listed = " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
        places = [f"on public holidays in {_place_name(self.holidays)}"] if self.holidays else []
        return f" except {' and '.join([*places, *([f'on {listed}'] if listed else [])])}"

    def have(self, slot: datetime, zone: ZoneInfo) -> bool:
        """Whether the slot lies on one of the days. ScheduleError: the holidays are not known."""
        day = wall_at(zone, slot).date()
        return day in self.dates or (bool(self.holidays) and day in _holidays_of(self.holidays, day.year))


NO_DAYS = ExceptedDays()


def end_of_day(zone: ZoneInfo, slot: datetime) -> datetime:
    """The instant before the next day, or before a clock change within the day, as clocks may go back a day."""
    midnight = min(each for each in _midnights(zone, slot, 1) if each > slot)
    change = first_change(zone, slot, midnight)
    return (change.at if change else midnight) - TICK


def end_of_day_before(zone: ZoneInfo, slot: datetime) -> datetime:
    """The instant before the slot's day, or before a clock change within the day."""
    midnight = max(each for each in _midnights(zone, slot, 0) if each <= slot)
    change = last_change(zone, midnight - TICK, slot)
    return (change.at if change else midnight) - TICK


def _midnights(zone: ZoneInfo, slot: datetime, days: int) -> tuple[datetime, datetime]:
    """When the slot's day begins, or so many days later; clocks may show a midnight twice."""
    midnight = datetime.combine(wall_at(zone, slot).date() + timedelta(days=days), time())
    return instant_of(zone, midnight), midnight.replace(tzinfo=zone, fold=1).astimezone(UTC)


def read_excepted(dates: object, holidays: object) -> ExceptedDays:
    """The values of `except` and `except_holidays`. ScheduleError bad_except, bad_except_holidays or missing_extra."""
    if not isinstance(dates, list) or len(dates) > MOST_DATES:
        raise ScheduleError("bad_except", f"`except` is a list of at most {MOST_DATES} dates.")
    read = tuple(sorted({_read_date(each) for each in dates}))
    if not isinstance(holidays, str):
        raise _bad_holidays(
            "Public holidays are those of a country such as DE, or of a part of it such as DE-BY."
        )
    if holidays:
        _holidays_of(holidays, 2000)
    return ExceptedDays(dates=read, holidays=holidays)


def _read_date(text: object) -> date:
    try:
        return date.fromisoformat(text if isinstance(text, str) and _DATE.fullmatch(text) else "")
    except ValueError:
        shown = f"{text!r:.40}"
        raise ScheduleError("bad_except", f"`except` has dates such as `2026-12-24`, not {shown}.") from None


def holiday_countries() -> dict[str, str]:
    """The names of the countries whose holidays are known, by their codes. Empty without the package."""
    registry = _package("holidays.registry")
    return {codes[1]: _title(key) for key, codes in registry.COUNTRIES.items()} if registry else {}


def _title(key: str) -> str:
    return key.replace("_", " ").title().replace(" And ", " and ").replace(" Of ", " of ")


def _place_name(place: str) -> str:
    country, _, part = place.partition("-")
    name = holiday_countries().get(country, country)
    return f"{name} ({part})" if part else name


@lru_cache(maxsize=1024)
def _holidays_of(place: str, year: int) -> frozenset[date]:
    """The public holidays of a year. ScheduleError bad_except_holidays or missing_extra."""
    package, found = _package("holidays"), _PLACE.fullmatch(place)
    if package is None:
        text = "Public holidays need a package that is not installed; it comes with the extra 'holidays' of Rondo."
        raise ScheduleError("missing_extra", text)
    if found is None or found["country"] not in holiday_countries():
        raise _bad_holidays(
            f"No public holidays of {place[:20]!r} are known; give a code such as DE or DE-BY."
        )
    try:
        return frozenset(package.country_holidays(found["country"], subdiv=found["part"], years=year))
    except NotImplementedError:
        raise _bad_holidays(f"{found['country']} has no part {found['part']!r} with holidays.") from None


def _bad_holidays(message: str) -> ScheduleError:
    return ScheduleError("bad_except_holidays", message)


def _package(name: str) -> Any:
    """The module, or None if the extra is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
