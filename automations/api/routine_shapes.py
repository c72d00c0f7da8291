"""The shapes of routines. Fields only: what a value may be is the verbs' business."""

from __future__ import annotations

from rest_framework import serializers

from automations.checks import TASK_TYPES
from automations.models import ExecutionMode, RunState, Source
from automations.rest import WaitReason
from automations.selectors import STATES
from sessions_app.api.fields import AnyObject, Flag, Input, OneOf, Text, WholeNumber
from sessions_app.api.shapes import Output, TextOrNull

MODES = [each for each in ExecutionMode.choices if each[0] != ExecutionMode.SESSION]
SOURCES = [each for each in Source.choices if each[0] != Source.SYSTEM]
SCHEDULE = "An interval (`30m`, `1h`, `2d`) or five cron fields; null: once."
FIRST = "The first firing, or the only one without a schedule; without an offset in the routine's zone."

INSTRUCTIONS = "Its own standing instructions; of an isolated one they stand in the system prompt."
POLICY = "Limits of one turn, laid over the agent's. A change is merged; null removes a key."


class RoutineChanges(Input):
    title = Text(required=False, allow_blank=True)
    description = Text(required=False, allow_blank=True)
    instructions = Text(required=False, allow_blank=True, help_text=INSTRUCTIONS)
    schedule = Text(required=False, allow_null=True, allow_blank=True, help_text=SCHEDULE)
    next_run_at = Text(required=False, allow_null=True, allow_blank=True, help_text=FIRST)
    execution_mode = OneOf(choices=MODES, required=False)
    timezone = Text(required=False, allow_blank=True, help_text="Empty: the agent's.")
    enabled = Flag(required=False)
    timeout_seconds = WholeNumber(required=False, allow_null=True)
    policy = AnyObject(required=False, help_text=POLICY)
    max_retry = WholeNumber(required=False, help_text="Further attempts of a run that failed; 3 at first.")
    task_type = OneOf(choices=TASK_TYPES, required=False, allow_blank=True)


class NewRoutineIn(RoutineChanges):
    title = Text(allow_blank=True)
    source = OneOf(choices=SOURCES, required=False)  # type: ignore[assignment]  # a field of this name
    allow_duplicate = Flag(required=False)
    session = serializers.UUIDField(
        required=False, allow_null=True, help_text="The conversation that is told; null: the primary one."
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
    at = serializers.DateTimeField(allow_null=True, help_text="When it is done, if that is once.")
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
    waits_for = WaitsForOut(allow_null=True, help_text="Why an inline routine that is due is not done yet.")
    last_status = serializers.ChoiceField(choices=RunState.choices, allow_null=True)
    pending = serializers.BooleanField()
    attempt = serializers.IntegerField(help_text="Of the last run; 0 before there was one.")
    error = TextOrNull(allow_null=True, help_text="Of the last run.")
    session = serializers.UUIDField(allow_null=True, help_text="Null: the primary one.")
    created_at = serializers.DateTimeField()
    revision = serializers.IntegerField()
