"""The fields that say when an appointment comes. They turn people's words for how often something runs into a schedule
of the API, and back: cron where it can say it, else a recurrence rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import TextChoices

from automations.exceptions import ScheduleError
from automations.models import CronJob, ScheduleKind
from automations.schedules.plan import schedule_of
from automations.schedules.schedule import RuleSchedule
from automations.schedules.zone_files import zone_or_utc
from interfaces.web.appointments.moments import ClockForm, MomentField, local_time, wall_time

PLAIN = {"autocomplete": "off", "spellcheck": "false"}  # of names


class Repeat(TextChoices):
    """How often something runs."""

    ONCE = "once", "Once"
    DAILY = "daily", "Every day"
    WEEKDAYS = "weekdays", "Monday to Friday"
    WEEKLY = "weekly", "On days of the week"
    MONTHLY = "monthly", "On a day of the month"
    EVERY = "every", "At an interval"
    CRON = "cron", "Cron expression"
    RULE = "rule", "Recurrence rule"


DAYS = (("1", "Mon"), ("2", "Tue"), ("3", "Wed"), ("4", "Thu"), ("5", "Fri"), ("6", "Sat"), ("0", "Sun"))
RULE_DAYS = {"1": "MO", "2": "TU", "3": "WE", "4": "TH", "5": "FR", "6": "SA", "0": "SU"}
WORKDAYS = "MO,TU,WE,TH,FR"
UNITS = (("60", "minutes"), ("3600", "hours"), ("86400", "days of 24 hours"), ("1", "seconds"))
NTH = (
    *(("", "day by number"), ("1", "the first"), ("2", "the second"), ("3", "the third")),
    *(("4", "the fourth"), ("-1", "the last")),
)
OF_MONTH = (
    *(("workday", "workday"), ("1", "Monday"), ("2", "Tuesday"), ("3", "Wednesday")),
    *(("4", "Thursday"), ("5", "Friday"), ("6", "Saturday"), ("0", "Sunday"), ("day", "day")),
)
NEEDS = {  # the fields that each way to repeat reads, and what to say when one of them is empty
    Repeat.ONCE: {"at": "Choose a date and a time."},
    Repeat.DAILY: {"time": "Choose a time."},
    Repeat.WEEKDAYS: {"time": "Choose a time."},
    Repeat.WEEKLY: {"days": "Choose at least one day.", "time": "Choose a time."},
    Repeat.MONTHLY: {"day": "Choose a day of the month, from 1 to 31.", "time": "Choose a time."},
    Repeat.EVERY: {"count": "Enter a number.", "unit": "Choose a unit."},
    Repeat.CRON: {"expr": "Enter five fields, such as 0 9 * * 1-5."},
    Repeat.RULE: {
        "rule": "Enter a rule, such as FREQ=WEEKLY;INTERVAL=2;BYDAY=MO.",
        "starts_at": "Choose a date and a time.",
    },
}
MAY = {"also", "weeks", "since", "nth", "of_month", "timezone", "except_on", "except_holidays"}  # be empty
WITHOUT_ZONE = {Repeat.ONCE, Repeat.EVERY}
MOST_TIMES = 6  # of a day, as a form shows them
UNEVEN = "With these days, all times need the same minutes, such as 09:00 and 18:00."
ONE_TIME = "A weekday of the month takes one time."


def number_field(label: str, least: int, most: int, hint: str = "", **options: Any) -> forms.IntegerField:
    """An optional number."""
    widget = forms.NumberInput({"placeholder": hint} if hint else {})
    return forms.IntegerField(
        label=label, min_value=least, max_value=most, widget=widget, **{"required": False} | options
    )


def line_field(
    label: str, most: int, attributes: dict[str, str], widget: Any = forms.TextInput
) -> forms.CharField:
    """An optional line of text."""
    return forms.CharField(required=False, max_length=most, label=label, widget=widget(attributes))


class ScheduleForm(ClockForm):
    """When an automation runs. `cleaned_data["schedule"]` is the API's JSON, with a time of this clock for `once`."""

    repeat = forms.ChoiceField(choices=Repeat.choices, initial=Repeat.DAILY, label="Repeat")
    at = MomentField(required=False, label="When")
    days = forms.MultipleChoiceField(
        required=False, choices=DAYS, widget=forms.CheckboxSelectMultiple, label="Days"
    )
    weeks = number_field("Every so many weeks", 1, 520, "1")
    since = forms.DateField(
        required=False, widget=forms.DateInput({"type": "date"}), label="Counted from the week of"
    )
    nth = forms.ChoiceField(required=False, choices=NTH, label="Which one")
    of_month = forms.ChoiceField(required=False, choices=OF_MONTH, initial="workday", label="Kind of day")
    day = number_field("Day of the month", 1, 31)
    time = forms.TimeField(
        required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"), initial=time(9)
    )
    also = line_field("More times of the day", 60, {"placeholder": "12:30, 18:00", **PLAIN})
    count = number_field("Every", 1, 1_000_000, initial=30)
    unit = forms.ChoiceField(required=False, choices=UNITS, label="Unit")
    expr = line_field("Cron expression", 200, {"placeholder": "0 9 * * 1-5"})
    rule = line_field("Rule (RFC 5545)", 200, {"placeholder": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", **PLAIN})
    starts_at = MomentField(required=False, label="Counted from")
    timezone = line_field("Time zone", 64, {"list": "zones", "autocomplete": "off"})
    except_on = line_field("These days", 1500, {"placeholder": "2026-12-24, 2026-12-31", **PLAIN})
    except_holidays = line_field(
        "Public holidays in", 16, {"list": "countries", "placeholder": "DE or DE-BY", **PLAIN}
    )

    def is_replanned(self) -> bool:
        """Whether a field that the chosen way to repeat reads has another value; browsers send all of them."""
        repeat = self.cleaned_data["repeat"]
        more = set() if repeat in WITHOUT_ZONE else MAY
        return not ({"repeat", *NEEDS[repeat]} | more).isdisjoint(self.changed_data)

    def clean_also(self) -> Any:
        """The times."""
        return _read_times(self.cleaned_data["also"])

    def clean_except_on(self) -> list[str]:
        """The dates as the API has them."""
        parts = re.findall(r"[^\s,;]+", self.cleaned_data["except_on"])
        try:
            return [date.fromisoformat(part).isoformat() for part in parts]
        except ValueError:
            raise ValidationError("Enter dates such as 2026-12-24, with commas.") from None

    def clean(self) -> dict[str, Any]:
        """Add the schedule, or say which field it needs."""
        given: dict[str, Any] = super().clean() or {}
        repeat = given.get("repeat", "")
        for name, text in NEEDS.get(repeat, {}).items():
            is_needed = name != "day" or not given.get("nth")
            if is_needed and given.get(name) in (None, "", []) and name not in self.errors:
                self.add_error(name, text)
        if repeat and not self.errors:
            try:
                given["schedule"] = _schedule_json(given)
            except ValidationError as error:
                self.add_error("also", error)
        return given


def _read_times(text: str) -> list[time]:
    """The times of a text. ValidationError."""
    parts = re.findall(r"[^\s,;]+", text)
    found = [re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", part, re.ASCII) for part in parts]
    times = [time(int(each[1]), int(each[2])) for each in found if each]
    if len(times) < len(found):
        raise ValidationError("Enter times such as 12:30, with commas.")
    if len(times) >= MOST_TIMES:
        raise ValidationError(f"Enter at most {MOST_TIMES - 1} more times, or use a cron expression.")
    return times


def _schedule_json(given: dict[str, Any]) -> dict[str, Any]:
    """The API's JSON of a schedule that the form has checked. ValidationError about its times."""
    match given["repeat"]:
        case Repeat.ONCE:
            return {"kind": ScheduleKind.AT, "at": wall_time(given["at"])}
        case Repeat.EVERY:
            return {"kind": ScheduleKind.EVERY, "seconds": given["count"] * int(given["unit"])}
        case Repeat.CRON:
            own: dict[str, Any] = {"kind": ScheduleKind.CRON, "expr": given["expr"]}
        case Repeat.RULE:
            start = wall_time(given["starts_at"])
            own = {"kind": ScheduleKind.RRULE, "rule": given["rule"], "starts_at": start}
        case _:
            own = _at_times(given, *_days(given))
    more = {
        "timezone": given["timezone"],
        "except": given.get("except_on"),
        "except_holidays": given.get("except_holidays"),
    }
    return own | {name: value for name, value in more.items() if value}


def _days(given: dict[str, Any]) -> tuple[str, str]:
    """The days as three cron fields, empty if cron cannot say them, and as a rule."""
    match given["repeat"]:
        case Repeat.DAILY:
            return "* * *", "FREQ=DAILY"
        case Repeat.WEEKDAYS:
            return "* * 1-5", f"FREQ=DAILY;BYDAY={WORKDAYS}"
        case Repeat.WEEKLY:
            days = ",".join(RULE_DAYS[day] for day in given["days"])
            if (weeks := given.get("weeks") or 1) > 1:
                return "", f"FREQ=WEEKLY;INTERVAL={weeks};BYDAY={days}"
            return f"* * {','.join(given['days'])}", f"FREQ=DAILY;BYDAY={days}"
    nth, of_month = given["nth"], given["of_month"]
    if not nth:
        return f"{given['day']} * *", f"FREQ=MONTHLY;BYMONTHDAY={given['day']}"
    match of_month:
        case "day":
            return f"{'L' if nth == '-1' else nth} * *", f"FREQ=MONTHLY;BYMONTHDAY={nth}"
        case "workday":
            return "", f"FREQ=MONTHLY;BYDAY={WORKDAYS};BYSETPOS={nth}"
    weekday = f"L{of_month}" if nth == "-1" else f"{of_month}#{nth}"
    return f"* * {weekday}", f"FREQ=MONTHLY;BYDAY={nth}{RULE_DAYS[of_month]}"


def _at_times(given: dict[str, Any], cron_days: str, rule: str) -> dict[str, Any]:
    """The days at the times: by cron, or by a rule from today, or from the week that weeks are counted from."""
    times = sorted({given["time"].replace(second=0, microsecond=0), *given["also"]})
    hours, minutes = ({getattr(each, unit) for each in times} for unit in ("hour", "minute"))
    grid = [time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]
    if cron_days and times == grid:
        return {"kind": ScheduleKind.CRON, "expr": f"{_joined(minutes)} {_joined(hours)} {cron_days}"}
    if len(times) > 1:
        if "BYSETPOS" in rule:
            raise ValidationError(ONE_TIME)
        rule += f";BYHOUR={_joined(hours)};BYMINUTE={_joined(minutes)}"
    if times != grid:
        if "FREQ=DAILY" not in rule:
            raise ValidationError(UNEVEN)
        rule += f";BYSETPOS={_joined({1 + grid.index(each) for each in times})}"
    now = datetime.now(zone_or_utc(given["timezone"])).replace(tzinfo=None)
    first = now.date()
    if "INTERVAL" in rule:
        coming = (first + timedelta(days=each) for each in range(8))
        chosen = (
            day for day in coming if f"{day:%w}" in given["days"] and datetime.combine(day, times[-1]) > now
        )
        first = given.get("since") or next(chosen)
    start = datetime.combine(first, times[0])
    return {"kind": ScheduleKind.RRULE, "rule": rule, "starts_at": wall_time(start)}


def _joined(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def schedule_fields(job: CronJob, clock: str) -> dict[str, Any]:
    """The values of the schedule's fields for a job, so that its form shows what is stored."""
    if job.schedule_kind == ScheduleKind.AT and job.at is not None:
        return {"repeat": Repeat.ONCE, "at": local_time(job.at, clock)}
    if job.schedule_kind == ScheduleKind.EVERY and job.every_seconds is not None:
        size = max(int(size) for size, _name in UNITS if job.every_seconds % int(size) == 0)
        return {"repeat": Repeat.EVERY, "count": job.every_seconds // size, "unit": str(size)}
    found = {
        "timezone": job.timezone,
        "except_on": ", ".join(map(str, job.except_dates or ())),
        "except_holidays": job.except_holidays,
    }
    if job.schedule_kind == ScheduleKind.CRON:
        return found | {"expr": job.expr} | _cron_fields(job.expr)
    start = job.anchor and job.anchor.replace(tzinfo=None)
    return found | {"rule": job.expr, "starts_at": start} | _rule_fields(job)


def _cron_fields(expr: str) -> dict[str, Any]:
    """The form's fields that say the same as a cron expression; `repeat` alone, as cron, if no others do."""
    minute, hour, day, month, weekday = expr.split()
    times = _cron_times(minute, hour)
    days = weekday.split(",")
    if not times or month != "*":
        return {"repeat": Repeat.CRON}
    at = _times(times)
    match day, weekday:
        case "*", "*":
            return {"repeat": Repeat.DAILY, **at}
        case "*", "1-5":
            return {"repeat": Repeat.WEEKDAYS, **at}
        case "*", _ if set(days) <= RULE_DAYS.keys():
            return {"repeat": Repeat.WEEKLY, "days": days, **at}
        case "*", _ if found := re.fullmatch(r"L([0-6])|([0-6])(?:L|#-1)|([0-6])#([1-4])", weekday):
            of_month = found[1] or found[2] or found[3]
            return {"repeat": Repeat.MONTHLY, "nth": found[4] or "-1", "of_month": of_month, **at}
        case "L", "*":
            return {"repeat": Repeat.MONTHLY, "nth": "-1", "of_month": "day", **at}
        case _, "*" if day.isdecimal():
            return {"repeat": Repeat.MONTHLY, "day": int(day), **at}
    return {"repeat": Repeat.CRON}


def _cron_times(minute: str, hour: str) -> list[time]:
    """The times of lists of minutes and hours; none for other fields."""
    if not all(part.isdecimal() for part in f"{minute},{hour}".split(",")):
        return []
    minutes, hours = ({int(part) for part in field.split(",")} for field in (minute, hour))
    times = [time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]
    return times if len(times) <= MOST_TIMES else []


def _times(times: list[time]) -> dict[str, Any]:
    return {"time": times[0], "also": ", ".join(f"{each:%H:%M}" for each in times[1:])}


def _rule_fields(job: CronJob) -> dict[str, Any]:
    """The form's fields that say the same as a rule that has begun; `repeat` alone, as rule, if no others do."""
    as_rule = {"repeat": Repeat.RULE}
    try:
        schedule = schedule_of(job)
        fields = schedule.fields if isinstance(schedule, RuleSchedule) else None
    except ScheduleError:
        return as_rule
    if fields is None or len(fields.times) > MOST_TIMES:
        return as_rule
    has_begun = fields.start.date() <= datetime.now(zone_or_utc(job.timezone)).date()
    at = _times([time(*divmod(each, 60)) for each in fields.times])
    parts: Mapping[str, str] = {
        name: value for name, value in fields.parts.items() if name not in ("BYHOUR", "BYMINUTE")
    }
    names = {value: name for name, value in RULE_DAYS.items()}
    days = [names.get(day, "") for day in parts.get("BYDAY", "").split(",") if day]
    match dict(parts):
        case {"FREQ": "WEEKLY", "INTERVAL": weeks, "BYDAY": _, **more} if not more and all(days):
            since = fields.start.date()
            return {"repeat": Repeat.WEEKLY, "days": days, "weeks": int(weeks), "since": since, **at}
        case {"FREQ": "MONTHLY", "BYDAY": "MO,TU,WE,TH,FR", "BYSETPOS": nth, **more} if (
            has_begun and not more and nth in dict(NTH)
        ):
            return {"repeat": Repeat.MONTHLY, "nth": nth, "of_month": "workday", **at}
        case {"FREQ": "DAILY", **more} if has_begun and not more.keys() - {"BYDAY", "BYSETPOS"} and all(days):
            if not days or parts["BYDAY"] == WORKDAYS:
                return {"repeat": Repeat.WEEKDAYS if days else Repeat.DAILY, **at}
            return {"repeat": Repeat.WEEKLY, "days": days, **at}
    return as_rule
