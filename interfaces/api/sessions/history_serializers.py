"""Serializers of messages: what people send, and the entries of a history."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from agent_core.types import Role, ToolOutcome
from interfaces.api.sessions.serializers import DELIVERIES, SentOut
from interfaces.http.fields import Input, NeededText, OneOf, Output
from sessions_app.models import OnBusy
from sessions_app.queue.receive import LONGEST_MESSAGE

THREAD = "The id of the thread, for messages of a thread of a unified agent itself; its `seq` counts there. Else null."


@extend_schema_serializer(component_name="NewMessage")
class MessageIn(Input):
    example = {"content": "Hello!", "on_busy": "inject"}
    content = NeededText(help_text=f"1 to {LONGEST_MESSAGE} characters.")
    on_busy = OneOf(choices=OnBusy.choices, required=False, help_text="inject when not given")


class CallOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    arguments = serializers.DictField()


class ResultOut(Output):
    id = serializers.CharField(help_text="The id of the call.")
    name = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in ToolOutcome])
    output = serializers.CharField()


class PartsOut(Output):
    calls = CallOut(many=True)
    results = ResultOut(many=True)

    def to_representation(self, instance: Any) -> Any:
        return super().to_representation({"calls": [], "results": []} | instance)


class MessageOut(Output):
    id = serializers.IntegerField()
    session = serializers.UUIDField(source="session_id")
    seq = serializers.IntegerField()
    thread = serializers.UUIDField(allow_null=True, help_text=THREAD)
    role = serializers.ChoiceField(choices=[role.value for role in Role])
    content = serializers.CharField()
    parts = PartsOut(help_text="Calls in an assistant's message, results in a tool message.")
    metadata = serializers.DictField()
    turn = serializers.IntegerField(source="turn_id", allow_null=True)
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)
    created_at = serializers.DateTimeField()
