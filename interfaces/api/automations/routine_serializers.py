"""Serializers of routines. Values are checked in `routines/edit.py`."""

from __future__ import annotations

from rest_framework import serializers

from automations.heartbeats.readiness import WaitReason
from automations.jobs.validate import TASK_TYPES
from automations.models import ExecutionMode, RunState, Source
from automations.selectors import STATES
from interfaces.api.automations.serializers import TimeoutSeconds
from interfaces.http.fields import (
    AnyObject,
    Flag,
    Input,
    NeededText,
    OneOf,
    Output,
    Text,
    TextOrNull,
    WholeNumber,
)

MODES = [each for each in ExecutionMode.choices if each[0] != ExecutionMode.SESSION]
SOURCES = [each for each in Source.choices if each[0] != Source.SYSTEM]
SCHEDULE = "An interval (`30m`, `1h`, `2d`) or five cron fields; null: run once."
FIRST = (
    "Time of the first run, or of the only run without a schedule. Without an offset: in the routine's zone."
)
INSTRUCTIONS = "The routine's standing instructions. An isolated routine has them in its system prompt."
POLICY = "Limits of one turn, which override the agent's. A change is merged; null removes a limit."


class RoutineChanges(Input):
    example = {"schedule": "2d", "timeout_seconds": 600}
    title = NeededText(required=False)
    description = Text(required=False, allow_blank=True)
    instructions = Text(required=False, allow_blank=True, help_text=INSTRUCTIONS)
    schedule = Text(required=False, allow_null=True, allow_blank=True, help_text=SCHEDULE)
    next_run_at = Text(required=False, allow_null=True, allow_blank=True, help_text=FIRST)
    execution_mode = OneOf(choices=MODES, required=False)
    timezone = Text(required=False, allow_blank=True, help_text="IANA name; empty: the agent's zone.")
    enabled = Flag(required=False)
    timeout_seconds = TimeoutSeconds(required=False, allow_null=True)
    policy = AnyObject(required=False, help_text=POLICY)
    max_retry = WholeNumber(required=False, help_text="Retries of a failed run. Default: 3.")
    task_type = OneOf(choices=TASK_TYPES, required=False, allow_blank=True)


class NewRoutineIn(RoutineChanges):
    example = {
        "title": "Read the news",
        "description": "Collect what is new about PostgreSQL.",
        "schedule": "1d",
        "execution_mode": "isolated",
        "timeout_seconds": 600,
    }
    title = NeededText()
    source = OneOf(choices=SOURCES, required=False)  # type: ignore[assignment]  # a field of this name
    allow_duplicate = Flag(required=False)
    session = serializers.UUIDField(
        required=False, allow_null=True, help_text="Session that gets the results; null: the primary one."
    )


class WaitsForOut(Output):
    reason = serializers.ChoiceField(choices=[each.value for each in WaitReason])
    until = serializers.DateTimeField(allow_null=True)


class RoutineOut(Output):
    id = serializers.CharField()
    agent = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    instructions = serializers.CharField(help_text=INSTRUCTIONS)
    schedule = serializers.CharField(allow_null=True, help_text=SCHEDULE)
    at = serializers.DateTimeField(allow_null=True, help_text="Time of a one-time routine.")
    timezone = serializers.CharField()
    execution_mode = serializers.ChoiceField(choices=MODES)
    task_type = serializers.ChoiceField(choices=TASK_TYPES)
    enabled = serializers.BooleanField()
    source = serializers.ChoiceField(choices=SOURCES)  # type: ignore[assignment]  # a field of this name
    timeout_seconds = serializers.IntegerField(allow_null=True)
    policy = serializers.DictField(help_text=POLICY)
    max_retry = serializers.IntegerField()
    next_run_at = serializers.DateTimeField(allow_null=True)
    last_run_at = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(choices=STATES)
    waits_for = WaitsForOut(allow_null=True, help_text="Why a due inline routine has not started.")
    last_status = serializers.ChoiceField(choices=RunState.choices, allow_null=True)
    pending = serializers.BooleanField()
    attempt = serializers.IntegerField(help_text="Attempt of the last run; 0 without runs.")
    error = TextOrNull(allow_null=True, help_text="Error of the last run.")
    session = serializers.UUIDField(
        allow_null=True, help_text="Session that gets the results; null: the primary one."
    )
    created_at = serializers.DateTimeField()
    revision = serializers.IntegerField()
