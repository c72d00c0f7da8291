"""What was and what comes in all conversations of a person: a lane of today and a week of days. Read only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from automations.appointments.attention import attention
from automations.appointments.calendar import Entry, upcoming
from automations.schedules.zone_files import zone_or_utc
from sessions_app import selectors
from sessions_app.web.pages import page, person, person_page

DAYS = 7  # that are shown; the first is yesterday
FARTHEST = timedelta(days=366)  # from now
LANE = 960  # width of the lane of today, in its own units: 40 for each hour


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One slot on the lane of today, `x` from the left."""

    x: int
    entry: Entry


@dataclass(frozen=True, kw_only=True)
class Day:
    """A day with its slots, those before now and those after it. `is_now`: it is today."""

    day: date
    past: tuple[Entry, ...]
    coming: tuple[Entry, ...]
    is_now: bool


@person_page("GET", "HEAD")
def week(request: HttpRequest) -> HttpResponse:
    """The week from `?from=2026-11-24`, by default from yesterday."""
    user = person(request)
    zone = _zone(user)
    now = datetime.now(zone)
    first = _first_day(request.GET.get("from", ""), now.date())
    end = first + timedelta(days=DAYS)
    entries = upcoming(user, _midnight(first, zone), _midnight(end, zone), zone=zone)
    days = [_day(first + timedelta(days=number), entries, now) for number in range(DAYS)]
    context: dict[str, Any] = {
        "attention": attention(user),
        "days": days,
        "is_empty": not entries,
        "zone": str(zone),
        "now": now,
        "earlier": first - timedelta(days=DAYS),
        "later": first + timedelta(days=DAYS),
        "is_this_week": first == now.date() - timedelta(days=1),
    }
    return page(request, "appointments/upcoming.html", **context, **_lane(entries, now))


def _lane(entries: Iterable[Entry], now: datetime) -> dict[str, Any]:
    """The slots of today by their place in the day. It is drawn for a week that has today in it."""
    marks = [Mark(x=_place(entry.at), entry=entry) for entry in entries if entry.at.date() == now.date()]
    return {"marks": marks, "now_at": _place(now), "width": LANE, "hours": range(0, 25, 3)}


def _place(at: datetime) -> int:
    return round((at.hour * 60 + at.minute) * LANE / (24 * 60))


def _day(day: date, entries: Sequence[Entry], now: datetime) -> Day:
    of_day = [entry for entry in entries if entry.at.date() == day]
    past = tuple(entry for entry in of_day if entry.at <= now)
    return Day(day=day, past=past, coming=tuple(of_day[len(past) :]), is_now=day == now.date())


def _first_day(given: str, today: date) -> date:
    try:
        found = date.fromisoformat(given)
    except ValueError:
        found = today - timedelta(days=1)
    return min(max(found, today - FARTHEST), today + FARTHEST)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _zone(user: User) -> ZoneInfo:
    """The zone of the person's first agent: people have none of their own."""
    agent = selectors.agents(user).order_by("created_at", "pk").first()
    return zone_or_utc(agent.timezone if agent else "UTC")
