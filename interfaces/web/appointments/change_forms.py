"""The forms that change an appointment: an automation with its pause, and a routine."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms

from automations.jobs.validate import LONGEST_MESSAGE, LONGEST_NAME, MOST_RETRIES
from automations.models import CronJob, ExecutionMode
from interfaces.web.appointments.forms import (
    EVERY,
    ONCE,
    AutomationForm,
    ScheduleForm,
    schedule_fields,
    timeout_field,
)
from interfaces.web.appointments.moment_field import MomentField, wall_time


class ChangeForm(AutomationForm):
    """An automation that exists: its runs can pause until a time."""

    paused_until = MomentField(
        required=False,
        label="Pause until",
    )

    def values(self) -> dict[str, Any]:
        """What `update_job` takes."""
        until: datetime | None = self.cleaned_data["paused_until"]
        return super().values() | {"paused_until": wall_time(until) if until else None}


class RoutineForm(ScheduleForm):
    """What a routine does and when. `update_routine` checks the values once more."""

    title = forms.CharField(max_length=LONGEST_NAME, label="Name")
    description = forms.CharField(
        required=False,
        max_length=LONGEST_MESSAGE,
        label="What should the agent do?",
        widget=forms.Textarea({"rows": 3}),
    )
    instructions = forms.CharField(
        required=False,
        max_length=LONGEST_MESSAGE,
        label="Standing instructions",
        widget=forms.Textarea({"rows": 3}),
    )
    execution_mode = forms.ChoiceField(
        choices=(
            (ExecutionMode.INLINE, "With the heartbeat"),
            (ExecutionMode.ISOLATED, "By itself, in a session of its own"),
        ),
        label="Where it runs",
    )
    max_retry = forms.IntegerField(min_value=0, max_value=MOST_RETRIES, label="Retries after a failure")
    timeout_seconds = timeout_field()

    @staticmethod
    def stored(job: CronJob) -> dict[str, Any]:
        """The values of the fields for a routine."""
        same = {
            name: getattr(job, name)
            for name in ("description", "execution_mode", "max_retry", "timeout_seconds")
        }
        return same | {"title": job.name, "instructions": job.message} | schedule_fields(job)

    def changes(self) -> dict[str, Any]:
        """What `update_routine` takes: those of the values that differ from the stored ones."""
        changed, given = set(self.changed_data), self.cleaned_data
        own = changed - ScheduleForm.base_fields.keys()
        texts = {"description", "instructions"}
        found = {
            name: given[name].replace("\r\n", "\n").strip() if name in texts else given[name] for name in own
        }
        return found | (self._plan() if self.is_replanned() else {})

    def _plan(self) -> dict[str, Any]:
        given = self.cleaned_data
        if given["repeat"] == ONCE:
            return {"schedule": None, "next_run_at": wall_time(given["at"]), "timezone": ""}
        if given["repeat"] == EVERY:
            return {"schedule": f"{given['count'] * int(given['unit'])}s"}
        return {"schedule": given["schedule"]["expr"], "timezone": given["timezone"]}
