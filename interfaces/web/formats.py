"""Times, numbers and amounts of money as a person reads them: filters and tags of all templates.

page.js shows times in the same words: `today 14:05`, `Thu 27 Nov 14:05`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from agent_core.spending import dollars_text
from automations.schedules.zone_files import zone_or_utc

register = template.Library()
NEAR = {-1: "yesterday", 0: "today", 1: "tomorrow"}
# how sentences of `automations` write an instant
_IN_TEXT = re.compile(r"(\bat )?\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)\b")


def words(at: datetime, now: datetime, *, exact: bool = False) -> str:
    """The instant in words, on the clock of its own zone; the year only if it is another than that of `now`.

    `exact`: with seconds unless they are 0.
    """
    here = now.astimezone(at.tzinfo)
    time = f"{at:%H:%M:%S}" if exact and at.second else f"{at:%H:%M}"
    if near := NEAR.get((at.date() - here.date()).days):
        return f"{near} {time}"
    year = "" if at.year == here.year else f" {at.year}"
    return f"{at:%a} {at.day} {at:%b}{year} {time}"


@register.simple_tag
def when(at: datetime, zone: str = "", *, exact: bool = False) -> SafeString:
    """The instant on the clock of this zone, which is named. Without a zone: UTC, which page.js makes the browser's."""
    return _element(at.astimezone(zone_or_utc(str(zone))), zone, exact=exact)


def _element(at: datetime, zone: str, *, named: bool = True, exact: bool = False) -> SafeString:
    iso = at.isoformat(timespec="seconds")
    return format_html(
        '<time datetime="{}" title="{} {}"{}{}>{}{}</time>',
        iso,
        iso,
        zone or "UTC",
        format_html(' data-zone="{}"', zone) if zone else "",
        mark_safe(" data-exact") if exact else "",
        words(at, datetime.now(UTC), exact=exact),
        format_html(' <span class="zone">{}</span>', zone or "UTC") if named else "",
    )


@register.filter
def spoken(at: datetime) -> str:
    """The instant in words on the clock of its own zone, for labels."""
    return words(at, datetime.now(UTC))


@register.filter
def with_times(text: str, zone: str) -> SafeString:
    """A sentence in which each instant, on the clock of this zone, is in words. Everything else is escaped.

    The zone is named with each instant, unless the sentence names it. Seconds are shown if two instants differ in them
    alone.
    """
    text, place = str(text), zone_or_utc(str(zone))
    parts, end = [], 0
    instants = {(found[2], found[3]) for found in _IN_TEXT.finditer(text)}
    exact = len({(day, clock[:5]) for day, clock in instants}) < len(instants)
    for found in _IN_TEXT.finditer(text):
        try:
            at = datetime.fromisoformat(f"{found[2]} {found[3]}").replace(tzinfo=place)
        except ValueError:  # something that only looks like one
            continue
        is_near = words(at, datetime.now(UTC))[0].islower()  # such as "today"
        parts += [
            escape(text[end : found.start()]),
            "on " if found[1] and not is_near else "",
            _element(at, zone, named=bool(zone) and zone not in text, exact=exact),
        ]
        end = found.end()
    return mark_safe("".join([*parts, escape(text[end:])]))  # noqa: S308 - every part is escaped


@register.filter
def grouped(number: int) -> str:
    """`280,000`."""
    return f"{number:,}"


@register.filter
def dollars(usd: str) -> str:
    """US dollars as they are stored, such as `0.120000`: `$0.12`."""
    return f"${dollars_text(Decimal(usd))}"
