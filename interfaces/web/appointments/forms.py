"""The form of an automation: how often, in the words of people, to a schedule of the API and back."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

from django import forms
from django.conf import settings

from automations.jobs.validate import (
    LONGEST_JITTER,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    LONGEST_PING_URL,
    MOST_RETRIES,
)
from automations.models import CatchUp, CronJob, Overlap, ScheduleKind
from automations.scheduled_messages import LONGEST_TEXT
from interfaces.web.appointments.moment_field import MomentField, local_time, wall_time

ONCE, DAILY, WEEKDAYS, WEEKLY, MONTHLY, EVERY, CRON = (
    "once",
    "daily",
    "weekdays",
    "weekly",
    "monthly",
    "every",
    "cron",
)
REPEATS = (
    (ONCE, "Once"),
    (DAILY, "Every day"),
    (WEEKDAYS, "Monday to Friday"),
    (WEEKLY, "On days of the week"),
    (MONTHLY, "On a day of the month"),
    (EVERY, "At an interval"),
    (CRON, "Cron expression"),
)
DAYS = (("1", "Mon"), ("2", "Tue"), ("3", "Wed"), ("4", "Thu"), ("5", "Fri"), ("6", "Sat"), ("0", "Sun"))
UNITS = (("60", "minutes"), ("3600", "hours"), ("86400", "days of 24 hours"), ("1", "seconds"))
NEEDS = {  # the fields that each way to repeat reads, and what to say when one of them is empty
    ONCE: {"at": "Choose a date and a time."},
    DAILY: {"time": "Choose a time."},
    WEEKDAYS: {"time": "Choose a time."},
    WEEKLY: {"days": "Choose at least one day.", "time": "Choose a time."},
    MONTHLY: {"day": "Choose a day of the month, from 1 to 31.", "time": "Choose a time."},
    EVERY: {"count": "Enter a number.", "unit": "Choose a unit."},
    CRON: {"expr": "Enter five fields, such as 0 9 * * 1-5."},
}

# and those that may be empty
READ = {
    repeat: {*needed, *(() if repeat in {ONCE, EVERY} else ("timezone",))} for repeat, needed in NEEDS.items()
}


class ScheduleForm(forms.Form):
    """When an automation runs. `cleaned_data["schedule"]` is the API's JSON."""

    repeat = forms.ChoiceField(choices=REPEATS, initial=DAILY, label="Repeat")
    at = MomentField(
        required=False,
        label="When",
    )
    days = forms.MultipleChoiceField(
        required=False, choices=DAYS, widget=forms.CheckboxSelectMultiple, label="Days"
    )
    day = forms.IntegerField(required=False, min_value=1, max_value=31, label="Day of the month")
    time = forms.TimeField(
        required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"), initial=time(9)
    )
    count = forms.IntegerField(required=False, min_value=1, max_value=1_000_000, label="Every", initial=30)
    unit = forms.ChoiceField(required=False, choices=UNITS, label="Unit")
    expr = forms.CharField(
        required=False,
        max_length=200,
        label="Cron expression",
        widget=forms.TextInput({"placeholder": "0 9 * * 1-5"}),
    )
    timezone = forms.CharField(
        required=False,
        max_length=64,
        label="Time zone",
        widget=forms.TextInput({"list": "zones", "autocomplete": "off"}),
    )

    def is_replanned(self) -> bool:
        """Whether a field that the chosen way to repeat reads has another value; browsers send all of them."""
        repeat = self.cleaned_data["repeat"]
        return not {"repeat", *READ[repeat]}.isdisjoint(self.changed_data)

    def clean(self) -> dict[str, Any]:
        """Add the schedule, or say which field it needs."""
        given: dict[str, Any] = super().clean() or {}
        repeat = given.get("repeat", "")
        missing = {
            name: text for name, text in NEEDS.get(repeat, {}).items() if given.get(name) in (None, "", [])
        }
        for name, text in missing.items():
            if name not in self.errors:
                self.add_error(name, text)
        if repeat and not self.errors:
            given["schedule"] = schedule_json(given)
        return given


def schedule_json(given: dict[str, Any]) -> dict[str, Any]:
    """The API's JSON of a schedule that the form has checked."""
    match given["repeat"]:
        case "once":
            return {"kind": "at", "at": wall_time(given["at"])}
        case "every":
            return {"kind": "every", "seconds": given["count"] * int(given["unit"])}
    zone = {"timezone": given["timezone"]} if given["timezone"] else {}
    return {"kind": "cron", "expr": _expression(given), **zone}


def _expression(given: dict[str, Any]) -> str:
    if given["repeat"] == CRON:
        return str(given["expr"])
    days = {WEEKDAYS: "* * 1-5", WEEKLY: f"* * {','.join(given['days'])}", MONTHLY: f"{given['day']} * *"}
    return f"{given['time'].minute} {given['time'].hour} {days.get(given['repeat'], '* * *')}"


def schedule_fields(job: CronJob) -> dict[str, Any]:
    """The values of the schedule's fields for a job, so that its form shows what is stored."""
    if job.schedule_kind == ScheduleKind.AT and job.at is not None:
        return {"repeat": ONCE, "at": local_time(job.at, job.agent.timezone)}
    if job.schedule_kind == ScheduleKind.EVERY and job.every_seconds is not None:
        return _interval_fields(job.every_seconds)
    return {"timezone": job.timezone, "expr": job.expr} | _cron_fields(job.expr)


def _interval_fields(seconds: int) -> dict[str, Any]:
    size = max(int(size) for size, _name in UNITS if seconds % int(size) == 0)
    return {"repeat": EVERY, "count": seconds // size, "unit": str(size)}


def _cron_fields(expr: str) -> dict[str, Any]:
    """How people would say it; any other expression stays one."""
    minute, hour, day, month, weekday = expr.split()
    if not (minute.isdecimal() and hour.isdecimal() and month == "*"):
        return {"repeat": CRON}
    at = {"time": time(int(hour), int(minute))}
    days = weekday.split(",")
    match day, weekday:
        case "*", "*":
            return {"repeat": DAILY, **at}
        case "*", "1-5":
            return {"repeat": WEEKDAYS, **at}
        case "*", _ if set(days) <= {value for value, _name in DAYS}:
            return {"repeat": WEEKLY, "days": days, **at}
        case _, "*" if day.isdecimal():
            return {"repeat": MONTHLY, "day": int(day), **at}
    return {"repeat": CRON}


def timeout_field() -> forms.IntegerField:
    """The time limit of an automation's or a routine's turns, in seconds."""
    return forms.IntegerField(
        required=False,
        min_value=1,
        max_value=settings.RONDO_TURN_SECONDS,
        label="Time limit in seconds",
        widget=forms.NumberInput({"placeholder": "as for all turns"}),
    )


class AutomationForm(ScheduleForm):
    """What an automation does and when. The functions that store it check the values once more."""

    message = forms.CharField(
        max_length=LONGEST_MESSAGE,
        label="What should the agent do?",
        widget=forms.Textarea({"rows": 3, "placeholder": "Summarise the news of the night"}),
    )
    name = forms.CharField(
        required=False,
        max_length=LONGEST_NAME,
        label="Name",
        widget=forms.TextInput({"placeholder": "The first words of the text"}),
    )
    ends_at = MomentField(
        required=False,
        label="No runs after",
    )
    max_runs = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=1_000_000,
        label="Stop after this many runs",
        widget=forms.NumberInput({"placeholder": "never"}),
    )
    overlap = forms.ChoiceField(
        required=False,
        initial=Overlap.SKIP,
        choices=((Overlap.SKIP, "Skip it"), (Overlap.QUEUE, "Let it wait")),
        label="If the previous run has not ended",
    )
    catch_up = forms.ChoiceField(
        required=False,
        initial=CatchUp.ONE,
        choices=(
            (CatchUp.ONE, "Run the latest missed one"),
            (CatchUp.NONE, "Run none of them"),
            (CatchUp.ALL, "Run all of them"),
        ),
        label="If the server was down",
    )
    max_retry = forms.IntegerField(
        required=False, min_value=0, max_value=MOST_RETRIES, label="Retries after a failure", initial=0
    )
    timeout_seconds = timeout_field()
    jitter_seconds = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=LONGEST_JITTER,
        label="Delay each run by a fixed time, up to so many seconds",
        initial=0,
    )
    ping_url = forms.CharField(
        required=False,
        max_length=LONGEST_PING_URL,
        label="Call this address after each run",
        widget=forms.URLInput({"placeholder": "https://hc-ping.com/…"}),
    )

    def changes(self) -> dict[str, Any]:
        """Those of the values that differ from the initial ones, so that nothing else is replaced."""
        changed = set(self.changed_data)
        is_replanned = self.is_replanned()
        values = self.values()
        return {
            name: value
            for name, value in values.items()
            if name in changed or (name == "schedule" and is_replanned)
        }

    def values(self) -> dict[str, Any]:
        """What `bind_job` and `update_job` take."""
        given = self.cleaned_data
        end: datetime | None = given["ends_at"]
        return {
            "message": given["message"].replace("\r\n", "\n").strip(),
            "name": given["name"],
            "schedule": given["schedule"],
            "ends_at": wall_time(end) if end else None,
            "max_runs": given["max_runs"],
            "overlap": given["overlap"] or Overlap.SKIP,
            "catch_up": given["catch_up"] or CatchUp.ONE,
            "max_retry": given["max_retry"] or 0,
            "timeout_seconds": given["timeout_seconds"],
            "jitter_seconds": given["jitter_seconds"] or 0,
            "ping_url": given["ping_url"],
        }


class LaterForm(forms.Form):
    """A fixed text at a set time."""

    message_text = forms.CharField(max_length=LONGEST_TEXT, label="Text", widget=forms.Textarea({"rows": 3}))
    send_at = MomentField(
        label="When",
    )
