"""Serializers of tokens and stream tickets. Values are checked in `tokens/issue.py`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from interfaces.http.fields import Input, Items, Moment, OneOf, Output, Text
from sessions_app.models import TokenScope
from sessions_app.models.api_token import LONGEST_NAME


class NewTokenIn(Input):
    example = {"name": "dashboard", "scopes": ["read"]}

    name = Text(max_length=LONGEST_NAME)
    scopes = Items(child=OneOf(choices=TokenScope.choices), min_length=1, max_length=len(TokenScope))
    agent = Text(required=False, allow_null=True, help_text="The name of the agent that it is limited to.")
    session = serializers.UUIDField(
        required=False, allow_null=True, help_text="The session that it is limited to."
    )
    expires_at = Moment(required=False, allow_null=True, help_text="Null: never.")


class TokenOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="How the token begins.")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=TokenScope.choices))
    agent = serializers.SerializerMethodField(help_text="The agent that it is limited to.")
    session = serializers.UUIDField(
        source="session_id", allow_null=True, help_text="The session that it is limited to."
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")

    def get_agent(self, row: Any) -> str | None:
        return None if row.agent is None else str(row.agent.name)


class MadeTokenOut(TokenOut):
    token = serializers.CharField(help_text="It is in this answer only.")


class TicketOut(Output):
    ticket = serializers.CharField()
    expires_at = serializers.DateTimeField()
