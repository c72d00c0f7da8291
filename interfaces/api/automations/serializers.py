"""Serializers of automations and runs. Values are checked in `jobs/edit.py` and `jobs/validate.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from automations.jobs.skip import MOST_SKIPPED
from automations.models import CatchUp, ExecutionMode, Overlap, RunState, Source
from automations.selectors import STATES
from interfaces.api.sessions.serializers import DELIVERIES, SentOut
from interfaces.http.fields import (
    Flag,
    Input,
    Moment,
    NeededText,
    OneOf,
    Output,
    Text,
    TextOrNull,
    WholeNumber,
)

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
    """Exactly one schedule."""


@extend_schema_field({"type": "integer", "minimum": 1, "maximum": settings.RONDO_TURN_SECONDS})
class TimeoutSeconds(WholeNumber):
    """Time limit of one turn."""


PING_URL = "Called by GET after each run that succeeded, with `/fail` after one that failed. Empty: none."


class AutomationFields(Input):
    name: Text = NeededText(required=False)
    message = NeededText(required=False)
    schedule = Schedule(required=False)
    enabled = Flag(required=False)
    overlap = OneOf(choices=Overlap.choices, required=False)
    catch_up = OneOf(choices=CatchUp.choices, required=False)
    timeout_seconds = TimeoutSeconds(required=False, allow_null=True)
    ends_at = Text(
        required=False,
        allow_null=True,
        help_text="No runs after this ISO time. Without an offset: in the agent's zone.",
    )
    max_runs = WholeNumber(required=False, allow_null=True, help_text="Maximum number of runs.")
    jitter_seconds = WholeNumber(
        required=False, help_text="Delay each run by a fixed amount, up to this many seconds."
    )
    max_retry = WholeNumber(required=False, help_text="Retries of a failed run. Default: 0.")
    ping_url = Text(required=False, allow_blank=True, help_text=PING_URL)


class AutomationChanges(AutomationFields):
    example = {"enabled": True, "timeout_seconds": 600}
    paused_until = Text(
        required=False,
        allow_null=True,
        help_text="Pause until this ISO time; null ends the pause. Without an offset: in the agent's zone.",
    )


class NewAutomation(AutomationFields):
    example = {
        "name": "Morning news",
        "message": "Summarise the news of the night.",
        "schedule": {"kind": "cron", "expr": "0 9 * * *", "timezone": "Europe/Berlin"},
        "timeout_seconds": 600,
    }
    name = Text(required=False, allow_blank=True)
    message = NeededText()
    schedule = Schedule()


class SkipIn(Input):
    example = {"slots": 1}
    slots = WholeNumber(
        required=False, min_value=1, max_value=MOST_SKIPPED, help_text="How many slots to skip."
    )
    until = Text(
        required=False,
        help_text="Skip the slots before this ISO time. Without an offset: in the agent's zone.",
    )


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
    ping_url = serializers.CharField(help_text=PING_URL)
    source = serializers.ChoiceField(choices=Source.choices)  # type: ignore[assignment]  # a field of this name
    next_run_at = serializers.DateTimeField(allow_null=True)
    paused_until = serializers.DateTimeField(
        allow_null=True, help_text="No slot before this time runs; null when it has passed."
    )
    state = serializers.ChoiceField(choices=STATES)
    last_status = serializers.ChoiceField(choices=RunState.choices, allow_null=True)
    pending = serializers.BooleanField()
    agent = serializers.CharField()
    session = serializers.UUIDField()
    session_key = serializers.CharField()
    created_at = serializers.DateTimeField()
    revision = serializers.IntegerField()


class SavedAutomationOut(AutomationOut):
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="What will go wrong, as `explain/` says it."
    )


class PromptRefOut(Output):
    id = serializers.CharField()
    version = serializers.IntegerField()
    sha256 = serializers.CharField()


class RunOut(Output):
    run_id = serializers.CharField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(
        source="session_id",
        allow_null=True,
        help_text="Where it runs; null before its turn, for an inline routine, and once the session is deleted.",
    )
    automation = serializers.CharField(
        source="automation_id", allow_null=True, help_text="One of these three is set: what it is a run of."
    )
    routine = serializers.CharField(source="routine_id", allow_null=True)
    scheduled_message = serializers.CharField(source="scheduled_message_id", allow_null=True)
    scheduled_for = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=RunState.choices)
    reason = TextOrNull(allow_null=True)
    slots_from = serializers.DateTimeField(allow_null=True)
    slots_to = serializers.DateTimeField(allow_null=True)
    count = serializers.IntegerField(source="slots_count", allow_null=True)
    attempt = serializers.IntegerField()
    not_before = serializers.DateTimeField(
        allow_null=True, help_text="Time of the next attempt, while the run waits for a retry."
    )
    turn = serializers.IntegerField(source="turn_id", allow_null=True)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    lag_ms = serializers.IntegerField(allow_null=True)
    duration_ms = serializers.IntegerField(allow_null=True)
    prompt_ref = PromptRefOut(allow_null=True)
    error = TextOrNull(allow_null=True)
    provider_message = TextOrNull(allow_null=True, help_text="What the model's provider said of the error.")
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)


class RunDetailOut(RunOut):
    rendered_prompt = TextOrNull(allow_null=True)
    prompt_variables = serializers.DictField(allow_null=True)


@extend_schema_field({"type": "string", "format": "date-time"})
class LocalMoment(serializers.Field[Any, Any, Any, Any]):
    """An instant with its own offset; DRF's field would convert it to UTC."""

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
    count = serializers.IntegerField(
        allow_null=True, help_text="Skipped slots; null above 1,000 and for other runs."
    )
    attempt = serializers.IntegerField()
    text = serializers.CharField(help_text="The result in one sentence.")


class ExplanationOut(Output):
    words = serializers.CharField(help_text="The schedule in words, in its own zone.")
    timezone = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    now = serializers.CharField(help_text="The current state in one sentence.")
    next = serializers.ListField(
        child=LocalMoment(),
        help_text="Up to 5 next runs, with the zone's offset.",
    )
    last = ExplainedRunOut(many=True, help_text="The last 20 runs, the latest slot first.")
    warnings = serializers.ListField(child=serializers.CharField())


class PreviewIn(Input):
    example = {"schedule": {"kind": "every", "seconds": 300}, "count": 5}
    schedule = Schedule()
    agent = Text(
        required=False,
        help_text="One of your agents: its zone is used for a schedule without a zone. Default: UTC.",
    )
    after = Moment(required=False)
    count = WholeNumber(required=False, min_value=1, max_value=50)


class PreviewOut(Output):
    next = serializers.ListField(
        child=serializers.CharField(),
        help_text="ISO times with the offset of the schedule's zone; an `at` keeps the offset that it was given.",
    )
    words = serializers.CharField()
    warnings = serializers.ListField(child=serializers.CharField())
