"""The shapes of executions, task states and preferences."""

from __future__ import annotations

from rest_framework import serializers

from agent_core.execution import Status, StepStatus, StepType
from sessions_app.api.fields import Input, Text
from sessions_app.api.shapes import Output, TextOrNull
from sessions_app.models import TurnKind
from sessions_app.receive import LONGEST_MESSAGE


class StepOut(Output):
    id = serializers.CharField()
    type = serializers.ChoiceField(choices=[each.value for each in StepType])
    title = serializers.CharField()
    status = serializers.ChoiceField(choices=[each.value for each in StepStatus])
    tool = TextOrNull(allow_null=True)
    arguments = serializers.DictField()
    question = TextOrNull(allow_null=True)


class ObservationOut(Output):
    kind = serializers.CharField(
        help_text="tool, error, reasoning, question, reply, message, update, or live:NAME."
    )
    text = serializers.CharField()
    step = TextOrNull(allow_null=True)


class ExecutionOut(Output):
    id = serializers.CharField()
    session = serializers.UUIDField(source="session_id")
    turn = serializers.IntegerField(
        source="turn_id", allow_null=True, help_text="That works on it, or did last."
    )
    begun_by = serializers.ChoiceField(
        choices=TurnKind.choices, source="source", help_text="The kind of the turn that began it."
    )
    status = serializers.ChoiceField(choices=[each.value for each in Status])
    request = serializers.CharField()
    goal = serializers.CharField()
    steps = StepOut(many=True)
    current_step = TextOrNull(allow_null=True)
    observations = ObservationOut(many=True)
    iterations = serializers.IntegerField()
    question = TextOrNull(allow_null=True, help_text="That waits, or waited last.")
    reply = TextOrNull(allow_null=True)
    final_answer = TextOrNull(allow_null=True)
    last_error = TextOrNull(allow_null=True)
    closed_by = TextOrNull(
        allow_null=True, help_text="reset, clear or person, where it was given up as it waited."
    )
    revision = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class AnswerIn(Input):
    content = Text(allow_blank=True, help_text=f"1 to {LONGEST_MESSAGE} characters.")


class MemoryChanges(Input):
    current_goal = Text(required=False, allow_blank=True)
    active_flow = Text(required=False, allow_blank=True)
    open_loops = serializers.ListField(child=Text(), required=False)
    important_facts = serializers.ListField(child=Text(), required=False)
    last_decision = Text(required=False, allow_blank=True)


class MemoryOut(Output):
    current_goal = serializers.CharField()
    active_flow = serializers.CharField()
    open_loops = serializers.ListField(child=serializers.CharField())
    important_facts = serializers.ListField(child=serializers.CharField())
    last_decision = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 before anything was held.")
    updated_at = serializers.DateTimeField(allow_null=True)


class PreferencesIn(Input):
    content = Text(allow_blank=True, help_text="Standing wishes, as text; live with the next turn.")


class PreferencesOut(Output):
    content = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 before anything was written.")
    updated_at = serializers.DateTimeField(allow_null=True)
