"""Reads schedules in simple sentences for the offline model, as arguments of the tool cron."""

from __future__ import annotations

import re
from typing import Any

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_UNIT = r"(?P<unit>second|minute|hour|day)s?"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?: ?(?P<half>am|pm))?"
_ZONE = r"(?: in (?P<zone>UTC|GMT|[A-Za-z_]+/[A-Za-z_/+-]+))?"
_INSTANT = r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)"
_FORMS = (
    rf"every (?P<on>day|weekday|{'|'.join(_DAYS)}) at {_CLOCK}{_ZONE}",
    rf"every (?:(?P<count>\d+) )?{_UNIT}",
    r"(?P<soon>in \d+ (?:second|minute|hour|day)s?)",
    rf"(?:on|at) {_INSTANT}",
)
_POLITE = r"(?:please |can you |could you )?"
_LINK = re.compile(r"^(?:[,:]? ?(?:please )?(?:remind me to|to) |[,:] ?)", re.IGNORECASE)
NO_CLOCK = "Offline I have no clock. Give me an absolute time, such as: at 2027-01-01T09:00 water the plants."


def read_schedule(text: str) -> dict[str, Any] | str | None:
    """Return arguments for the tool cron, or a text that says why not, or None if there is no schedule.

    The schedule is at the beginning or at the end. The rest is the automation's message.
    """
    sentence = " ".join(text.split())
    for form in _FORMS:
        first = re.match(rf"{_POLITE}(?:{form})\b(?P<rest>.*)$", sentence, re.IGNORECASE)
        last = re.match(rf"{_POLITE}(?P<rest>.+?),? (?:{form})[.!]?$", sentence, re.IGNORECASE)
        match = first or last
        if match:
            return _arguments(match)
    return None


def _arguments(match: re.Match[str]) -> dict[str, Any] | str:
    given = match.groupdict()
    message = _LINK.sub("", given["rest"]).strip(" .")
    if not message:
        return "Say what is to be done, too."
    if given.get("soon"):
        return NO_CLOCK
    arguments: dict[str, Any] = {"action": "add", "message": message}
    if given.get("at"):
        return {**arguments, "at": given["at"]}
    if given.get("on"):
        return _clock(arguments, given)
    return {**arguments, "every_seconds": int(given["count"] or 1) * _SECONDS[given["unit"].lower()]}


def _clock(arguments: dict[str, Any], given: dict[str, str | None]) -> dict[str, Any] | str:
    hour, minute = int(given["hour"] or 0), int(given["minute"] or 0)
    half = (given["half"] or "").lower()
    if hour > 23 or minute > 59 or (half and not 1 <= hour <= 12):
        return "That is no time of day."
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    on = (given["on"] or "").lower()
    days = {"day": "*", "weekday": "1-5"}.get(on) or str(_DAYS.index(on))
    arguments = {**arguments, "cron_expr": f"{minute} {hour} * * {days}"}
    return {**arguments, "tz": given["zone"]} if given["zone"] else arguments
