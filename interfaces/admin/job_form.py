"""The form of an automation. `create_job` and `update_job` check its values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from automations.jobs.validate import CHOICES
from automations.models import CronJob, ScheduleKind
from automations.schedules.schedule import AtSchedule
from interfaces.admin.agents import CAPS_HELP, ObjectField
from interfaces.admin.base import VerbForm, clean_line
from sessions_app.spending.caps import replacing

KIND_OF = {
    "cron": ScheduleKind.CRON,
    "cron_timezone": ScheduleKind.CRON,
    "seconds": ScheduleKind.EVERY,
    "once_at": ScheduleKind.AT,
}
SCHEDULE_FIELDS = ("schedule_kind", *KIND_OF)
NUMBERS = ("jitter_seconds", "max_retry")  # empty is 0


def _line(help_text: str, **more: Any) -> forms.CharField:
    """An optional text of one line."""
    widget = UnfoldAdminTextInputWidget
    return forms.CharField(required=False, widget=widget, help_text=help_text, **more)


class JobForm(VerbForm[CronJob]):
    """The fields that a person may set. Most checks are those of `create_job` and `update_job`."""

    class Meta:
        field_classes = {"limits": ObjectField}
        help_texts = {"limits": CAPS_HELP}

    field_of = {
        "bad_cron": "cron",
        "never_fires": "cron",
        "unknown_timezone": "cron_timezone",
        "bad_interval": "seconds",
        "bad_time": "once_at",
        "past_at": "once_at",
        "empty_name": "name",
        "bad_name": "name",
        "empty_message": "message",
        "bad_message": "message",
        "message_too_long": "message",
        "bad_ends_at": "last_at",
        **{
            f"bad_{name}": name
            for name in ("timeout_seconds", "max_runs", "ping_url", "limits", *NUMBERS, *CHOICES)
        },
    }
    name = _line("Default: the first words of the message.", max_length=200)
    schedule_kind = forms.ChoiceField(
        choices=ScheduleKind.choices,
        initial=ScheduleKind.CRON,
        widget=UnfoldAdminSelectWidget,
        label="Schedule",
    )
    cron = _line("For cron: five fields, such as <code>0 9 * * 1-5</code>.")
    cron_timezone = _line("For cron. Default: the agent's zone.", label="Cron time zone")
    seconds = forms.IntegerField(
        required=False, widget=UnfoldAdminIntegerFieldWidget, help_text="For every: seconds between two runs."
    )
    once_at = _line(
        "For at: <code>2027-01-01T09:00:00+01:00</code>. Without an offset: in the agent's zone.", label="At"
    )
    last_at = _line("No runs after this time. Without an offset: in the agent's zone.", label="Ends at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"session", "message", *NUMBERS} & self.fields.keys():
            self.fields[name].required = name not in NUMBERS
        if "session" in self.fields:
            self.fields["session"].help_text = "If the agent is unified, a thread means the primary session."
        job = self.instance
        if not job._state.adding:
            stored: dict[str, Any] = {
                "schedule_kind": job.schedule_kind,
                "cron": job.expr,
                "cron_timezone": job.timezone if job.expr else "",
                "seconds": job.every_seconds,
                "once_at": _written(job, job.at),
                "last_at": _written(job, job.ends_at),
            }
            self.initial = {**stored, **self.initial}

    def clean_name(self) -> str:
        return clean_line("name", self.cleaned_data["name"])

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        given = self.cleaned_data
        if "limits" in given:
            given["limits"] = replacing(self.instance.limits, given["limits"] or {})
        for name in given.keys() & set(NUMBERS):
            given[name] = given[name] or 0
        for name, kind in KIND_OF.items():
            # a field that still has the old schedule's value was not changed, and is ignored
            is_given = name in self.changed_data and given.get(name) not in (None, "")
            if is_given and kind != given.get("schedule_kind", kind):
                self.add_error(name, f"Exactly one schedule: leave this empty, or choose {kind.label}.")
        return cleaned

    @property
    def schedule(self) -> dict[str, Any]:
        """The schedule as the API's JSON."""
        given = self.cleaned_data
        kind = given["schedule_kind"]
        if kind == ScheduleKind.CRON:
            zone = {"timezone": given["cron_timezone"]} if given["cron_timezone"] else {}
            return {"kind": kind, "expr": given["cron"]} | zone
        if kind == ScheduleKind.EVERY:
            return {"kind": kind, "seconds": given["seconds"]}
        return {"kind": kind, "at": given["once_at"]}

    @property
    def changes(self) -> dict[str, Any]:
        changes = super().changes
        for name in NUMBERS:
            if changes.get(name) == self.initial.get(name):
                changes.pop(name, None)
        if changes.keys() & set(SCHEDULE_FIELDS):
            changes = {name: value for name, value in changes.items() if name not in SCHEDULE_FIELDS}
            changes["schedule"] = self.schedule
        if "last_at" in changes:
            changes["ends_at"] = changes.pop("last_at") or None
        return changes


def _written(job: CronJob, instant: datetime | None) -> str:
    if instant is None:
        return ""
    return str(AtSchedule(at=instant).to_json(zone=job.agent.timezone)["at"])
