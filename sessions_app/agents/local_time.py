"""The current time in an agent's time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo


def local_now(zone: ZoneInfo) -> datetime:
    """Return the current time in this zone."""
    return datetime.now(zone)


def describe_local_time(zone: ZoneInfo) -> str:
    """Weekday, date and time with its offset, and the zone."""
    now = local_now(zone)
    return f"{now:%A}, {now.isoformat(' ', 'minutes')} ({now.tzinfo})"
