"""Times as a person reads them, for the templates: `today 14:05`, `Thu 27 Nov 14:05`. page.js shows the same words."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from automations.schedules.zone_files import zone_or_utc

register = template.Library()
NEAR = {-1: "yesterday", 0: "today", 1: "tomorrow"}
# how sentences of `automations` write an instant
_IN_TEXT = re.compile(r"\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)\b")


def words(at: datetime, now: datetime) -> str:
    """The instant in words, on the clock of its own zone; the year only if it is another than that of `now`."""
    here = now.astimezone(at.tzinfo)
    if near := NEAR.get((at.date() - here.date()).days):
        return f"{near} {at:%H:%M}"
    year = "" if at.year == here.year else f" {at.year}"
    return f"{at:%a} {at.day} {at:%b}{year} {at:%H:%M}"


@register.simple_tag
def when(at: datetime, zone: str = "") -> SafeString:
    """The instant on the clock of this zone, which is named. Without a zone: UTC, which page.js makes the browser's."""
    return _element(at.astimezone(zone_or_utc(str(zone))), zone)


def _element(at: datetime, zone: str, *, named: bool = True) -> SafeString:
    iso = at.isoformat(timespec="seconds")
    return format_html(
        '<time datetime="{}" title="{} {}"{}>{}{}</time>',
        iso,
        iso,
        zone or "UTC",
        format_html(' data-zone="{}"', zone) if zone else "",
        words(at, datetime.now(UTC)),
        format_html(' <span class="zone">{}</span>', zone or "UTC") if named else "",
    )


@register.filter
def spoken(at: datetime) -> str:
    """The instant in words on the clock of its own zone, for labels."""
    return words(at, datetime.now(UTC))


@register.filter
def with_times(text: str, zone: str) -> SafeString:
    """A sentence in which each instant, on the clock of this zone, is in words. Everything else is escaped.

    The zone is named with each instant, unless the sentence names it.
    """
    text, place = str(text), zone_or_utc(str(zone))
    parts, end = [], 0
    for found in _IN_TEXT.finditer(text):
        try:
            at = datetime.fromisoformat(f"{found[1]} {found[2]}").replace(tzinfo=place)
        except ValueError:  # something that only looks like one
            continue
        parts += [
            escape(text[end : found.start()]),
            _element(at, zone, named=bool(zone) and zone not in text),
        ]
        end = found.end()
    return mark_safe("".join([*parts, escape(text[end:])]))  # noqa: S308 - every part is escaped
