"""Fields for an instant, and forms whose instants are on the clock of one zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from automations.schedules.wall_time import instant_ahead
from automations.schedules.zone_files import zone_or_utc

LOCAL = "%Y-%m-%dT%H:%M"  # how browsers send a date with a time
# with years of four digits, who types goes on to the hour; browsers would take six
MOMENT = {"type": "datetime-local", "max": "9999-12-31T23:59"}


def wall_time(at: datetime) -> str:
    """The time that was typed, without an offset."""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def local_time(at: datetime, zone: str) -> datetime:
    """The time on the clock of this zone, as the field takes it."""
    return at.astimezone(zone_or_utc(zone)).replace(tzinfo=None)


class MomentInput(forms.DateTimeInput):
    """The seconds are shown if there are any, so that a form sends them back as they were."""

    def format_value(self, value: Any) -> str | None:
        """The time in the form of browsers; a typed text stays as it is."""
        if not isinstance(value, datetime):
            return value or None
        return value.strftime(f"{LOCAL}:%S" if value.second else LOCAL)


class MomentField(forms.DateTimeField):
    """A date with a time, on the clock of its form.

    It has changed if the clock shows another time: Django would compare a time with a zone and one without.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(input_formats=[LOCAL, f"{LOCAL}:%S"], widget=MomentInput(MOMENT), **options)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether another time was typed."""
        try:
            given = self.to_python(data)
        except ValidationError:
            return True
        before = wall_time(initial) if initial else ""
        return before != (wall_time(given) if given else "")


class ClockForm(forms.Form):
    """A form whose instants are on the clock of one zone."""

    def __init__(self, *args: Any, clock: str = "UTC", **options: Any) -> None:
        super().__init__(*args, **options)
        self.clock = clock

    def instant(self, name: str) -> str | None:
        """The instant of a field, as the API takes it; None for an empty field."""
        typed, zone = self.cleaned_data[name], zone_or_utc(self.clock)
        if typed is None:
            return None
        try:
            at = instant_ahead(zone, typed.replace(tzinfo=None), datetime.now(UTC))
        except OverflowError:  # on the last day that there is, which the API refuses
            return wall_time(typed)
        return at.astimezone(zone).isoformat()


def next_hour(zone: str) -> datetime:
    """The wall time of the next full hour there."""
    local = datetime.now(zone_or_utc(zone)) + timedelta(hours=1)
    return local.replace(minute=0, second=0, microsecond=0, tzinfo=None)
