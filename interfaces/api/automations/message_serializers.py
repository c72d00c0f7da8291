"""Serializers of scheduled messages. Values are checked in `scheduled_messages.py`."""

from __future__ import annotations

from rest_framework import serializers

from automations.models import MessageStatus
from interfaces.http.fields import Flag, Input, NeededText, Output, TextOrNull


class NewScheduledMessage(Input):
    example = {"send_at": "2099-01-01T09:00:00+01:00", "message_text": "Happy New Year!"}
    send_at = NeededText(help_text="ISO time. Without an offset: in the agent's zone.")
    message_text = NeededText(help_text="Sent unchanged, without a model.")
    replace_existing = Flag(
        required=False, help_text="Cancel the session's pending messages. Default: false."
    )


class ScheduledMessageOut(Output):
    id = serializers.CharField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(source="session_id")
    session_id = serializers.UUIDField(help_text="The same as `session`.")
    send_at = serializers.DateTimeField()
    message_text = serializers.CharField()
    status = serializers.ChoiceField(choices=MessageStatus.choices)
    replace_existing = serializers.BooleanField()
    cancelled_ids = serializers.ListField(
        child=serializers.CharField(), help_text="Messages that this one replaced."
    )
    sent_at = serializers.DateTimeField(allow_null=True)
    sent_message_id = serializers.IntegerField(
        allow_null=True, help_text="The `id` of its entry in the session's history."
    )
    last_error = TextOrNull(allow_null=True)
    created_at = serializers.DateTimeField()
