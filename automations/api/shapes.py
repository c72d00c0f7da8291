"""The shapes of what comes in and goes out. Fields only: what a value may be is the verbs' business."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from automations.models import CatchUp, ExecutionMode, Overlap, RunState, Source
from automations.selectors import STATES
from sessions_app.api.fields import Flag, Input, Moment, OneOf, Text, WholeNumber
from sessions_app.api.shapes import DELIVERIES, Output, SentOut, TextOrNull

_KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "cron": ({"expr": {"type": "string", "example": "0 9 * * *"}, "timezone": {"type": "string"}}, ["expr"]),
    "every": ({"seconds": {"type": "integer", "minimum": 1}}, ["seconds"]),
    "at": ({"at": {"type": "string", "format": "date-time"}}, ["at"]),
}
SCHEDULE = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"type": "string", "enum": [kind]}, **properties},
            "required": ["kind", *required],
            "additionalProperties": False,
        }
        for kind, (properties, required) in _KINDS.items()
    ]
}


@extend_schema_field(SCHEDULE)
class Schedule(serializers.JSONField):
    """Exactly one schedule; automations.schedule reads it, whatever it is."""


class AutomationChanges(Input):
    name = Text(required=False, allow_blank=True)
    message = Text(required=False, allow_blank=True)
    schedule = Schedule(required=False)
    enabled = Flag(required=False)
    overlap = OneOf(choices=Overlap.choices, required=False)
    catch_up = OneOf(choices=CatchUp.choices, required=False)
    timeout_seconds = WholeNumber(required=False, allow_null=True)
    ends_at = Text(
        required=False, allow_null=True, help_text="No slot lies later; without offset in the agent's zone."
    )
    max_runs = WholeNumber(required=False, allow_null=True, help_text="No more slots are run than these.")
    jitter_seconds = WholeNumber(
        required=False, help_text="Each slot is fired up to so much later, always by the same amount."
    )
    max_retry = WholeNumber(required=False, help_text="Further attempts of a run that failed.")


class NewAutomation(AutomationChanges):
    message = Text(allow_blank=True)
    schedule = Schedule()


class AutomationOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    message = serializers.CharField()
    schedule = Schedule()
    enabled = serializers.BooleanField()
    execution_mode = serializers.ChoiceField(choices=ExecutionMode.choices)
    overlap = serializers.ChoiceField(choices=Overlap.choices)
    catch_up = serializers.ChoiceField(choices=CatchUp.choices)
    timeout_seconds = serializers.IntegerField(allow_null=True)
    ends_at = serializers.DateTimeField(allow_null=True)
    max_runs = serializers.IntegerField(allow_null=True)
    jitter_seconds = serializers.IntegerField()
    max_retry = serializers.IntegerField()
    source = serializers.ChoiceField(choices=Source.choices)  # type: ignore[assignment]  # a field of this name
    next_run_at = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(choices=STATES)
    last_status = serializers.ChoiceField(choices=RunState.choices, allow_null=True)
    pending = serializers.BooleanField()
    session_key = serializers.CharField()
    revision = serializers.IntegerField()


class PromptRefOut(Output):
    id = serializers.CharField()
    version = serializers.IntegerField()
    sha256 = serializers.CharField()


class RunOut(Output):
    run_id = serializers.CharField()
    scheduled_for = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=RunState.choices)
    reason = TextOrNull(allow_null=True)
    slots_from = serializers.DateTimeField(allow_null=True)
    slots_to = serializers.DateTimeField(allow_null=True)
    count = serializers.IntegerField(source="slots_count", allow_null=True)
    attempt = serializers.IntegerField()
    not_before = serializers.DateTimeField(
        allow_null=True, help_text="When the next attempt begins, while one is waited for."
    )
    turn = serializers.IntegerField(source="turn_id", allow_null=True)
    lag_ms = serializers.IntegerField(allow_null=True)
    duration_ms = serializers.IntegerField(allow_null=True)
    prompt_ref = PromptRefOut(allow_null=True)
    error = TextOrNull(allow_null=True)
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)


class RunDetailOut(RunOut):
    rendered_prompt = TextOrNull(allow_null=True)
    prompt_variables = serializers.DictField(allow_null=True)


@extend_schema_field({"type": "string", "format": "date-time"})
class LocalMoment(serializers.Field[Any, Any, Any, Any]):
    """An instant with the offset that it has; DRF's own field would turn it to UTC."""

    def to_representation(self, value: datetime) -> str:
        """ISO."""
        return value.isoformat()


class ExplainedRunOut(Output):
    run_id = serializers.CharField()
    scheduled_for = LocalMoment(help_text="The slot, with the offset of the schedule's zone.")
    state = serializers.ChoiceField(choices=RunState.choices)
    reason = TextOrNull(allow_null=True)
    slots_from = LocalMoment(allow_null=True)
    slots_to = LocalMoment(allow_null=True)
    count = serializers.IntegerField(allow_null=True, help_text="Null beyond 1,000, and for a run.")
    attempt = serializers.IntegerField()
    text = serializers.CharField(help_text="What came of it, in one sentence.")


class ExplanationOut(Output):
    words = serializers.CharField(help_text="The schedule in words, in its own zone.")
    timezone = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    now = serializers.CharField(help_text="What holds at this moment, in one sentence.")
    next = serializers.ListField(
        child=LocalMoment(),
        help_text="Up to 5 instants at which it will be fired, with the zone's offset.",
    )
    last = ExplainedRunOut(many=True, help_text="The last 20 runs, the latest slot first.")
    warnings = serializers.ListField(child=serializers.CharField())


class PreviewIn(Input):
    schedule = Schedule()
    agent = Text(
        required=False,
        help_text="An agent of yours: its zone is that of a schedule which names none. UTC when it is not given.",
    )
    after = Moment(required=False)
    count = WholeNumber(required=False, min_value=1, max_value=50)


class PreviewOut(Output):
    next = serializers.ListField(
        child=serializers.CharField(),
        help_text="ISO instants with the offset of the schedule's zone; of an `at` with the one that it was given.",
    )
    words = serializers.CharField()
    warnings = serializers.ListField(child=serializers.CharField())
