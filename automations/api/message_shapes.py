"""The shapes of scheduled messages. Fields only: what a value may be is the verbs' business."""

from __future__ import annotations

from rest_framework import serializers

from automations.models import MessageStatus
from sessions_app.api.fields import Flag, Input, Text
from sessions_app.api.shapes import Output, TextOrNull


class NewScheduledMessage(Input):
    send_at = Text(allow_blank=True, help_text="An ISO time; without offset in the agent's zone.")
    message_text = Text(allow_blank=True, help_text="Sent as it stands; no model is asked.")
    replace_existing = Flag(required=False, help_text="Cancel what waits in the session. Default: false.")


class ScheduledMessageOut(Output):
    id = serializers.CharField()
    session_id = serializers.UUIDField()
    send_at = serializers.DateTimeField()
    message_text = serializers.CharField()
    status = serializers.ChoiceField(choices=MessageStatus.choices)
    replace_existing = serializers.BooleanField()
    cancelled_ids = serializers.ListField(
        child=serializers.CharField(), help_text="The messages that this one replaced."
    )
    sent_at = serializers.DateTimeField(allow_null=True)
    sent_message_id = serializers.IntegerField(
        allow_null=True, help_text="The `id` of its entry in the session's history."
    )
    last_error = TextOrNull(allow_null=True)
    created_at = serializers.DateTimeField()
