"""Times, numbers and amounts of money as a person reads them: filters and tags of all templates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from decimal import Decimal

from django import template
from django.utils import timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from agent_core.spending import dollars_text
from automations.schedules.zone_files import zone_or_utc
from sessions_app.agents.zones import known_zones

register = template.Library()
NEAR = {-1: "yesterday", 0: "today", 1: "tomorrow"}
# how sentences of `automations` write an instant
_IN_TEXT = re.compile(r"(\bat )?\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)\b(?: \(([\w+/-]{1,64})\))?")


def words(at: datetime, now: datetime, *, exact: bool = False) -> str:
    """The instant in words, on the clock of its own zone; the year only if it is another than that of `now`.

    `exact`: with seconds unless they are 0.
    """
    here, time = now.astimezone(at.tzinfo), _time(at, exact=exact)
    if near := NEAR.get((at.date() - here.date()).days):
        return f"{near} {time}"
    year = "" if at.year == here.year else f" {at.year}"
    return f"{at:%a} {at.day} {at:%b}{year} {time}"


def _time(at: datetime, *, exact: bool) -> str:
    return f"{at:%H:%M:%S}" if exact and at.second else f"{at:%H:%M}"


def _clock() -> tzinfo | None:
    """The person's clock, which `pages.fragment` activates; None while their zone is not known."""
    active = timezone.get_current_timezone()
    return None if active is timezone.get_default_timezone() else active


def _shown(at: datetime, zone: str, *, exact: bool = False) -> tuple[datetime, str, str]:
    """The instant on the person's clock, else in this zone; how it is said; and the time there, if that is another."""
    there = at.astimezone(zone_or_utc(zone))
    here = at.astimezone(_clock() or there.tzinfo)
    said = words(here, datetime.now(UTC), exact=exact)
    if not zone or here.utcoffset() == there.utcoffset():
        return here, said, ""
    day = "" if here.date() == there.date() else f"{there:%a} "
    return here, said, f"{day}{_time(there, exact=exact)}"


@register.simple_tag
def when(at: datetime, zone: str = "", *, exact: bool = False) -> SafeString:
    """The instant on the person's clock, and beside it the time in this zone, if that is another.

    While the person's zone is not known, it is in this zone, which is named; without one in UTC.
    """
    return _element(at, str(zone), exact=exact)


def _element(at: datetime, zone: str, *, named: bool = True, exact: bool = False) -> SafeString:
    here, said, there = _shown(at, zone, exact=exact)
    beside = ""
    if there:
        beside = format_html(' ({}<span class="zone"> {}</span>)', there, zone)
    elif named and _clock() is None:
        beside = format_html(' <span class="zone">{}</span>', zone or "UTC")
    iso = here.isoformat(timespec="seconds")
    return format_html(
        '<time datetime="{}" title="{} {}">{}{}</time>', iso, iso, _clock() or zone or "UTC", said, beside
    )


@register.filter
def spoken(at: datetime) -> str:
    """As `when` for the instant's own zone, without markup."""
    zone = str(at.tzinfo)
    _, said, there = _shown(at, zone)
    beside = f"({there} {zone})" if there else zone * (_clock() is None)
    return f"{said} {beside}".rstrip()


@register.filter
def with_times(text: str, zone: str = "") -> SafeString:
    """A sentence in which each instant is as `when` says it. Everything else is escaped.

    Its instants are on the clock of this zone, or of the one that follows in parentheses; those without any stay as
    they are. Seconds are shown if two instants differ in them alone.
    """
    text, zone = str(text), str(zone)
    parts, end = [], 0
    instants = {(found[2], found[3]) for found in _IN_TEXT.finditer(text)}
    exact = len({(day, clock[:5]) for day, clock in instants}) < len(instants)
    for found in _IN_TEXT.finditer(text):
        own = found[4] if found[4] in known_zones() else ""
        name, stop = (own, found.end()) if own else (zone, found.end(3))
        if not name:
            continue
        try:
            at = datetime.fromisoformat(f"{found[2]} {found[3]}").replace(tzinfo=zone_or_utc(name))
            shown = _element(at, name, named=bool(own) or name not in text, exact=exact)
        except (ValueError, OverflowError):  # something that only looks like one
            continue
        is_near = shown.partition(">")[2][:1].islower()  # such as "today"
        parts += [escape(text[end : found.start()]), "on " if found[1] and not is_near else "", shown]
        end = stop
    return mark_safe("".join([*parts, escape(text[end:])]))  # noqa: S308 - every part is escaped


@register.filter
def grouped(number: int) -> str:
    """`280,000`."""
    return f"{number:,}"


@register.filter
def dollars(usd: str) -> str:
    """US dollars as they are stored, such as `0.120000`: `$0.12`."""
    return f"${dollars_text(Decimal(usd))}"
