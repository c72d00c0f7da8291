"""The field of a date with a time, on the clock of the agent's zone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from automations.schedules.zone_files import zone_or_utc

LOCAL = "%Y-%m-%dT%H:%M"  # how browsers send a date with a time
# with years of four digits, who types goes on to the hour; browsers would take six
MOMENT = {"type": "datetime-local", "max": "9999-12-31T23:59"}


def wall_time(at: datetime) -> str:
    """The time that was typed, without an offset: the API reads it in the agent's zone."""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def local_time(at: datetime, zone: str) -> datetime:
    """The time on the clock of this zone, as the field takes it."""
    return at.astimezone(zone_or_utc(zone)).replace(tzinfo=None)


class MomentInput(forms.DateTimeInput):
    """The seconds are shown if there are any, so that a form sends them back as they were."""

    def __init__(self) -> None:
        super().__init__(attrs=MOMENT)

    def format_value(self, value: Any) -> str | None:
        """As browsers want it; what was typed stays."""
        if not isinstance(value, datetime):
            return value or None
        return value.strftime(f"{LOCAL}:%S" if value.second else LOCAL)


class MomentField(forms.DateTimeField):
    """It has changed if the clock shows another time: Django would compare a time with a zone and one without."""

    def __init__(self, **options: Any) -> None:
        super().__init__(input_formats=[LOCAL, f"{LOCAL}:%S"], widget=MomentInput(), **options)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether another time was typed."""
        try:
            given = self.to_python(data)
        except ValidationError:
            return True
        before = wall_time(initial) if initial else ""
        return before != (wall_time(given) if given else "")
