"""Write a calendar for other programs (RFC 5545): instants in UTC, lines of at most 75 bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime

LONGEST_LINE = 75  # bytes
_BEGIN = (
    *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Rondo//Appointments//EN", "METHOD:PUBLISH"),
    *("X-WR-CALNAME:Rondo", "REFRESH-INTERVAL;VALUE=DURATION:PT1H", "X-PUBLISHED-TTL:PT1H"),
)


@dataclass(frozen=True, kw_only=True)
class Event:
    """An instant, or a whole day. `uid` is the same each time that the event is written."""

    uid: str
    name: str
    at: datetime | date


def calendar_text(events: Iterable[Event], now: datetime) -> str:
    """The calendar with these events, which keep nobody's time busy."""
    lines = [*_BEGIN]
    for each in events:
        begin = f":{_utc(each.at)}" if isinstance(each.at, datetime) else f";VALUE=DATE:{each.at:%Y%m%d}"
        lines += ["BEGIN:VEVENT", f"UID:{_text(each.uid)}", f"DTSTAMP:{_utc(now)}", f"DTSTART{begin}"]
        lines += [f"SUMMARY:{_text(each.name)}", "TRANSP:TRANSPARENT", "END:VEVENT"]
    return "".join(f"{_folded(line)}\r\n" for line in (*lines, "END:VCALENDAR"))


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _text(text: str) -> str:
    return re.sub(r"([\\;,])", r"\\\1", re.sub(r"[\x00-\x1f\x7f]+", " ", text))


def _folded(line: str) -> str:
    parts, size = [], 0
    for letter in line:
        more = len(letter.encode())
        if size + more > LONGEST_LINE:
            parts.append("\r\n ")
            size = 1  # the space
        parts.append(letter)
        size += more
    return "".join(parts)
