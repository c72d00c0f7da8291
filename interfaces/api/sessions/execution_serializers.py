"""Serializers of executions, task states and preferences."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agent_core.execution import Status, StepStatus, StepType
from interfaces.http.fields import Input, Items, NeededText, Output, StoredMoment, Text, TextOrNull
from interfaces.http.waiting import AskedCallOut
from sessions_app.models import ConsentState, TurnKind
from sessions_app.questions.question_reads import consents_of
from sessions_app.queue.receive import LONGEST_MESSAGE


class StepOut(Output):
    id = serializers.CharField()
    type = serializers.ChoiceField(choices=[each.value for each in StepType])
    title = serializers.CharField()
    status = serializers.ChoiceField(choices=[each.value for each in StepStatus])
    plan = serializers.SerializerMethodField(help_text="The number of its plan.")
    tool = TextOrNull(allow_null=True)
    arguments = serializers.DictField()
    instruction = TextOrNull(allow_null=True, default="")
    question = TextOrNull(allow_null=True)
    confirm = serializers.BooleanField(default=False, help_text="The question is answered by yes or no.")
    consent = serializers.SerializerMethodField(
        help_text="For a tool that needs consent: asked, yes or no; null before the question."
    )
    started_at = StoredMoment(allow_null=True, default=None)
    ended_at = StoredMoment(allow_null=True, default=None)

    def get_plan(self, step: dict[str, Any]) -> int:
        """The id of a step begins with the number of its plan."""
        number = str(step["id"]).partition(".")[0]
        return int(number) if number.isdecimal() else 0

    @extend_schema_field({"type": "string", "enum": ["asked", "yes", "no"], "nullable": True})
    def get_consent(self, step: dict[str, Any]) -> str | None:
        if not step.get("consent"):
            return None
        if step.get("consented"):
            return "yes"
        return "no" if step["status"] == StepStatus.FAILED else "asked"


class ObservationOut(Output):
    kind = serializers.CharField(
        help_text="tool, error, reasoning, question, reply, message, update, or live:NAME."
    )
    text = serializers.CharField()
    step = TextOrNull(allow_null=True)


class ConsentOut(Output):
    question_id = serializers.CharField()
    question = serializers.CharField(help_text="The text of the question.")
    calls = AskedCallOut(many=True, help_text="The calls that a yes allows, in full.")
    state = serializers.ChoiceField(choices=ConsentState.choices)
    asked_at = StoredMoment()
    answered_at = StoredMoment(allow_null=True)
    answered_by = serializers.IntegerField(allow_null=True, help_text="The turn with the answer.")


class QuestionOut(ConsentOut):
    agent = serializers.CharField(source="agent_name")
    question_id = serializers.CharField(source="id")
    question = serializers.CharField(source="text", help_text="The text of the question.")
    answered_by = serializers.IntegerField(source="answered_by_id", allow_null=True)
    session = serializers.UUIDField(source="session_id")
    turn = serializers.IntegerField(source="turn_id", help_text="The turn that asked it.")
    execution = TextOrNull(
        allow_null=True, help_text="The execution that waits for the answer; null in a chat."
    )
    created_at = serializers.DateTimeField(source="asked_at", help_text="The same as `asked_at`.")


class ExecutionOut(Output):
    id = serializers.CharField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(source="session_id")
    turn = serializers.IntegerField(
        source="turn_id", allow_null=True, help_text="The current or last turn of this execution."
    )
    begun_by = serializers.ChoiceField(
        choices=TurnKind.choices, source="source", help_text="The kind of the turn that started it."
    )
    status = serializers.ChoiceField(choices=[each.value for each in Status])
    request = serializers.CharField()
    goal = serializers.CharField()
    plan = serializers.IntegerField(source="plans", help_text="The number of the current plan.")
    steps = StepOut(many=True)
    current_step = TextOrNull(allow_null=True)
    observations = ObservationOut(many=True)
    iterations = serializers.IntegerField()
    question = TextOrNull(allow_null=True, help_text="The open question, or the last one.")
    question_id = TextOrNull(allow_null=True)
    asked_at = serializers.DateTimeField(allow_null=True, help_text="When the question was asked.")
    consents = serializers.SerializerMethodField(
        help_text="The newest questions for consent and their answers, oldest first: at most 20, of 1 MB together."
    )
    more_consents = serializers.SerializerMethodField(
        help_text="Whether there are older ones that `consents` has no room for."
    )
    reply = TextOrNull(allow_null=True)
    final_answer = TextOrNull(allow_null=True)
    last_error = TextOrNull(allow_null=True)
    closed_by = TextOrNull(
        allow_null=True, help_text="Why it was cancelled while it waited: clear, person or newer."
    )
    revision = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    @extend_schema_field(ConsentOut(many=True))
    def get_consents(self, execution: Any) -> list[dict[str, Any]]:
        return list(ConsentOut(consents_of(execution).shown, many=True).data)

    def get_more_consents(self, execution: Any) -> bool:
        return consents_of(execution).is_more


class AnswerIn(Input):
    example = {"content": "On Friday."}
    content = NeededText(help_text=f"1 to {LONGEST_MESSAGE} characters.")
    question = Text(
        required=False, help_text="The id of the question that you answer: 409 when another one is open now."
    )


class QuestionAnswerIn(Input):
    example = {"content": "yes"}
    content = NeededText(help_text=f"1 to {LONGEST_MESSAGE} characters.")


class MemoryChanges(Input):
    example = {"current_goal": "Plan the trip to Lisbon", "open_loops": ["Book a hotel"]}
    current_goal = Text(required=False, allow_blank=True)
    active_flow = Text(required=False, allow_blank=True)
    open_loops = Items(child=Text(), required=False)
    important_facts = Items(child=Text(), required=False)
    last_decision = Text(required=False, allow_blank=True)


class MemoryOut(Output):
    current_goal = serializers.CharField()
    active_flow = serializers.CharField()
    open_loops = serializers.ListField(child=serializers.CharField())
    important_facts = serializers.ListField(child=serializers.CharField())
    last_decision = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 before anything was stored.")
    updated_at = serializers.DateTimeField(allow_null=True)


class PreferencesIn(Input):
    example = {"content": "Keep answers short."}
    content = Text(
        allow_blank=True, help_text="Standing instructions as text; they apply from the next turn."
    )


class PreferencesOut(Output):
    content = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 before anything was written.")
    updated_at = serializers.DateTimeField(allow_null=True)
