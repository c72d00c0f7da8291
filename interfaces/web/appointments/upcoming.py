"""The page of past and coming slots in all conversations of a person: what needs them, then a week from now on.

Also the same slots as a calendar for other programs, at a secret address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from automations.appointments.calendar import Entry, counted, tally, upcoming
from automations.appointments.jobs import Kind
from automations.appointments.notices import attention
from automations.runs.describe import SlotState
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.appointments.ics import Event, calendar_text
from interfaces.web.conversation import to_the_letter
from interfaces.web.pages import clock_of, page, person, person_page
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.reads import selectors
from sessions_app.tokens.issue import calendar_owner

DAY = timedelta(days=1)
DAYS = 7  # that are shown
FARTHEST = timedelta(days=366)  # from now


@person_page("GET", "HEAD")
def week(request: HttpRequest) -> HttpResponse:
    """The week from `?from=2026-11-24`, by default from now on; then what was since yesterday is folded."""
    user = person(request)
    zone = clock_of(request) or zone_of(user)
    now = datetime.now(zone)
    first = _first_day(request.GET.get("from", ""), now.date())
    is_now, end = first == now.date(), first + DAYS * DAY
    since = first - DAY if is_now else first
    found = upcoming(user, _midnight(since, zone), _midnight(end, zone), zone=zone)
    beats, entries = _split(found, lambda each: each.kind == Kind.HEARTBEAT)
    begin = now if is_now else _midnight(first, zone)
    past, shown = _split(entries, lambda each: _is_over(each, begin))
    monday = first - first.weekday() * DAY
    context: dict[str, Any] = {
        "attention": [
            replace(each, calls=to_the_letter(each.calls), title=each.title or each.agent)
            for each in attention(user, zone)
        ],
        "past": _fold(past),
        "beats": _fold(beats),
        "days": [_day(first + number * DAY, shown) for number in range(DAYS)],
        "hours": sorted({each.at.hour for each in shown if not each.is_folded}),
        "is_empty": not shown,
        "zone": str(zone),
        "zone_note": f" ({zone})",  # the page names it once
        "now": now,
        "is_now": is_now,
        "week": "" if is_now else first.isoformat(),  # for forms, to come back to it
        "earlier": monday if monday < first else monday - DAYS * DAY,
        "later": monday + DAYS * DAY,
    }
    return page(request, "appointments/upcoming.html", **context)


def _is_over(entry: Entry, begin: datetime) -> bool:
    """Whether the slot is from before this instant; one that waits or runs is not over while its day is shown."""
    is_shown = entry.at.date() >= begin.astimezone(entry.at.tzinfo).date()
    return entry.at < begin and not (entry.state == SlotState.WAITING and is_shown)


def _split(entries: Iterable[Entry], is_first: Callable[[Entry], bool]) -> tuple[list[Entry], list[Entry]]:
    """The entries of which this is true, and the others."""
    parts: tuple[list[Entry], list[Entry]] = ([], [])
    for each in entries:
        parts[not is_first(each)].append(each)
    return parts


def _fold(entries: Sequence[Entry]) -> dict[str, Any]:
    """Entries that stand behind one line: `17 slots before now: 16 ran, 1 failed`."""
    states = tally(entries)
    days = [(day, list(found)) for day, found in groupby(entries, lambda each: each.at.date())]
    return {"number": sum(states.values()), "counted": counted(states), "days": days}


def _day(day: date, entries: Sequence[Entry]) -> dict[str, Any]:
    """The entries of a day, by hour; those of many slots come first."""
    of_day = [entry for entry in entries if entry.at.date() == day]
    folded, single = _split(of_day, lambda each: each.is_folded)
    hours = [(hour, list(found)) for hour, found in groupby(single, lambda each: each.at.hour)]
    return {"day": day, "folded": folded, "hours": hours}


def _first_day(given: str, today: date) -> date:
    try:
        found = date.fromisoformat(given)
    except ValueError:
        found = today
    return min(max(found, today - FARTHEST), today + FARTHEST)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def zone_of(user: User) -> ZoneInfo:
    """The zone of the person's first agent, as long as their own is not known."""
    agent = selectors.agents(user).order_by("created_at", "pk").first()
    return zone_or_utc(agent.timezone if agent else "UTC")


SINCE, UNTIL = timedelta(days=7), timedelta(days=62)  # of the calendar for other programs, from now
MOST_EVENTS = 2_000  # of the past, and of what comes
KINDS = (Kind.AUTOMATION, Kind.ROUTINE)  # beside messages
READS = Rate(limit=30, seconds=600)  # of one user's calendar
NAMED = {SlotState.FAILED, SlotState.MISSED}  # states that an event's name ends with


@never_cache
@require_safe
def calendar(request: HttpRequest, token: str) -> HttpResponse:  # noqa: ARG001 - Django's signature
    """The appointments of the user whose secret address this is, as iCalendar. 404 if there is none, 429."""
    plain = "text/plain; charset=utf-8"
    if (user := calendar_owner(token)) is None:
        response = HttpResponse("There is no such calendar.\n", plain, status=404)
    elif wait := take_allowance(f"calendar:{user.pk}", READS):
        response = HttpResponse("Too many requests.\n", plain, status=429)
        response.headers["Retry-After"] = str(ceil(wait))
    else:
        now = datetime.now(UTC)
        response = HttpResponse(calendar_text(_events(user, now), now), "text/calendar; charset=utf-8")
        response.headers["Content-Disposition"] = 'inline; filename="rondo.ics"'
    response.headers["Referrer-Policy"] = "no-referrer"  # the address is the secret
    return response


def _events(user: User, now: datetime) -> Iterator[Event]:
    """The slots by name. A day on which a job has many is one event; slots that were skipped are left out."""
    zone = zone_of(user)
    parts = ((now - SINCE, now), (now, now + UNTIL))
    found = [
        entry
        for since, until in parts
        for entry in upcoming(user, since, until, zone=zone, kinds=KINDS, most=MOST_EVENTS)
    ]
    whole = {(each.id, each.at.date()): each.name for each in found if each.is_folded}
    for (key, day), name in whole.items():
        yield Event(uid=f"{key}:{day}", name=name, at=day)
    seen = set()
    for each in found:
        uid = each.run_id if each.kind != Kind.MESSAGE else each.id
        if (each.id, each.at.date()) in whole or each.state == SlotState.SKIPPED or uid in seen:
            continue
        seen.add(uid)
        ended = f" ({each.state})" if each.state in NAMED else ""
        yield Event(uid=uid, name=each.name + ended, at=each.at)
