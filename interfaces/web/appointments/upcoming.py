"""The page of past and coming slots in all conversations of a person: a time line of today and a week. Read only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from automations.appointments.calendar import Entry, upcoming, worst_state
from automations.appointments.panel import attention
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.conversation import to_the_letter
from interfaces.web.pages import clock_of, page, person, person_page
from sessions_app.reads import selectors

DAYS = 7  # that are shown; the first is yesterday
FARTHEST = timedelta(days=366)  # from now
HALF = 480  # width of half a day on the lane of today, in its own units: 40 for each hour
COUNT_WIDTH = 20  # that a count beside a mark takes, in the same units


@person_page("GET", "HEAD")
def week(request: HttpRequest) -> HttpResponse:
    """The week from `?from=2026-11-24`, by default from yesterday."""
    user = person(request)
    zone = clock_of(request) or _zone(user)
    now = datetime.now(zone)
    first = _first_day(request.GET.get("from", ""), now.date())
    end = first + timedelta(days=DAYS)
    entries = upcoming(user, _midnight(first, zone), _midnight(end, zone), zone=zone)
    days = [_day(first + timedelta(days=number), entries, now) for number in range(DAYS)]
    context: dict[str, Any] = {
        "attention": [
            replace(each, calls=to_the_letter(each.calls), title=each.title or each.agent)
            for each in attention(user, zone)
        ],
        "days": days,
        "is_empty": not entries,
        "zone": str(zone),
        "zone_note": f" ({zone})",  # the page names it once
        "now": now,
        "earlier": first - timedelta(days=DAYS),
        "later": first + timedelta(days=DAYS),
        "is_this_week": first == now.date() - timedelta(days=1),
    }
    return page(request, "appointments/upcoming.html", **context, **_lane(entries, now))


def _lane(entries: Iterable[Entry], now: datetime) -> dict[str, Any]:
    """The slots of today by their place in the day, for the time line of a week that has today in it."""
    today = [entry for entry in entries if entry.at.date() == now.date()]
    halves = [_half(today, now, number) for number in (0, 1)]
    return {"halves": halves, "slots_today": len(today), "width": HALF}


def _half(today: Sequence[Entry], now: datetime, number: int) -> dict[str, Any]:
    """The morning (0) or the rest of the day (1): a phone shows one below the other. `x`, `end`: from the left."""
    begin = 12 * number
    hours = range(begin, begin + 12 + number, 3)  # noon is written once
    here = (each for each in today if each.at.hour // 12 == number)
    now_at = _x_of(now) if now.hour // 12 == number else None
    return {
        "hours": [{"x": (hour - begin) * HALF // 12, "hour": hour} for hour in hours],
        "marks": list(_marks(here, -HALF if now_at is None else now_at)),
        "spans": list(_spans(today, number)),
        "now_at": now_at,
    }


def _marks(entries: Iterable[Entry], now_at: int) -> Iterator[dict[str, Any]]:
    """The marks of the time line: slots at one place share a mark. A count that would lie on another is left out."""
    places: dict[int, list[Entry]] = {}
    for entry in entries:
        places.setdefault(_x_of(entry.at), []).append(entry)
    counted = -COUNT_WIDTH
    for x, found in sorted(places.items()):
        has_count = len(found) > 1 and x - counted >= COUNT_WIDTH and abs(x - now_at) >= COUNT_WIDTH
        counted = x if has_count else counted
        state = worst_state(each.state for each in found)
        yield {"x": x, "state": state, "entries": found, "has_count": has_count}


def _spans(today: Iterable[Entry], number: int) -> Iterator[dict[str, Any]]:
    """The spans of the time line: each stands for many slots of one appointment."""
    for entry in today:
        if entry.until is None:
            continue
        first = entry.at.hour // 12
        last = entry.until.hour // 12 if entry.until.date() == entry.at.date() else 2  # after today
        if first <= number <= last:
            x = _x_of(entry.at) if first == number else 0
            yield {"x": x, "end": _x_of(entry.until) if last == number else HALF, "state": entry.state}


def _x_of(at: datetime) -> int:
    return round((at.hour % 12 * 60 + at.minute) * HALF / (12 * 60))


def _day(day: date, entries: Sequence[Entry], now: datetime) -> dict[str, Any]:
    of_day = [entry for entry in entries if entry.at.date() == day]
    return {
        "day": day,
        "past": [entry for entry in of_day if entry.at <= now],
        "coming": [entry for entry in of_day if entry.at > now],
        "is_now": day == now.date(),
    }


def _first_day(given: str, today: date) -> date:
    try:
        found = date.fromisoformat(given)
    except ValueError:
        found = today - timedelta(days=1)
    return min(max(found, today - FARTHEST), today + FARTHEST)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _zone(user: User) -> ZoneInfo:
    """The zone of the person's first agent, as long as their own is not known."""
    agent = selectors.agents(user).order_by("created_at", "pk").first()
    return zone_or_utc(agent.timezone if agent else "UTC")
