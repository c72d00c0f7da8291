"""The serializer of the updates in a session's mailbox."""

from __future__ import annotations

from rest_framework import serializers

from interfaces.http.fields import Output, TextOrNull
from sessions_app.models import Priority

MAIL_STATES = ["pending", "acknowledged", "dropped"]


class MailOut(Output):
    event_id = serializers.UUIDField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(source="target_id", help_text="The session that got it.")
    event_type = serializers.CharField()
    source_key = serializers.CharField(help_text="The key of the session that it reports on.")
    source_session = serializers.UUIDField(
        allow_null=True, help_text="The id of that session; null once it is deleted."
    )
    summary = serializers.CharField()
    detail = serializers.CharField()
    artifacts = serializers.ListField(child=serializers.CharField())
    priority = serializers.ChoiceField(choices=Priority.choices)
    state = serializers.ChoiceField(choices=MAIL_STATES)
    reason = TextOrNull(allow_null=True)
    turn = serializers.IntegerField(source="acknowledged_by_id", allow_null=True)
    created_at = serializers.DateTimeField()
