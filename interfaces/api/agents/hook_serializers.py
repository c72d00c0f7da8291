"""Serializers of hooks and of the messages posted to them."""

from __future__ import annotations

from rest_framework import serializers

from interfaces.http.fields import Flag, Input, Items, NeededText, OneOf, Output, Text, TextOrNull
from sessions_app import permits
from sessions_app.hooks.edit import LONGEST_NAME
from sessions_app.hooks.inbound import LONGEST_SENDER
from sessions_app.models import OnBusy, TurnState
from sessions_app.models.session import LONGEST_ADDRESS
from sessions_app.queue.receive import LONGEST_MESSAGE

ROUTE = "Where answers to this hook's messages go; empty: where the session's own answers go."
AS_PERSON = "Whether its messages are treated as a person's, as from a bridge to a chat service."
ALLOW_TOOLS = (
    "Names of writing or dangerous tools that turns of its messages may use. Without `as_person` they may use only"
    " these and reading tools."
)


class _HookFields(Input):
    channel = Text(required=False, allow_blank=True, help_text=ROUTE)
    address = Text(required=False, allow_blank=True, max_length=LONGEST_ADDRESS)
    signed = Flag(required=False, help_text="Whether only signed messages are accepted.")
    as_person = Flag(required=False, help_text=AS_PERSON)
    allow_tools = Items(
        child=Text(max_length=permits.LONGEST_NAME),
        required=False,
        max_length=permits.MOST_ALLOWED,
        help_text=ALLOW_TOOLS,
    )


class HookChanges(_HookFields):
    example = {"name": "CI", "enabled": True}
    name = NeededText(required=False, max_length=LONGEST_NAME)
    enabled = Flag(required=False)


class NewHookIn(_HookFields):
    example = {"name": "CI", "channel": "webhook", "address": "https://ci.example/answers"}
    name = NeededText(max_length=LONGEST_NAME)
    session = serializers.UUIDField(required=False, help_text="The primary session when not given.")


class HookOut(Output):
    id = serializers.CharField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(
        source="session_id", allow_null=True, help_text="Null: the primary session."
    )
    name = serializers.CharField()
    channel = TextOrNull(allow_null=True, help_text=ROUTE)
    address = TextOrNull(allow_null=True)
    signed = serializers.BooleanField()
    as_person = serializers.BooleanField(help_text=AS_PERSON)
    allow_tools = serializers.ListField(child=serializers.CharField(), help_text=ALLOW_TOOLS)
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revision = serializers.IntegerField()


class HookWithToken(HookOut):
    token = serializers.CharField(help_text="Shown only in this answer.")


class InboundMessage(Input):
    example = {"content": "Build 7 failed.", "sender": "builder"}
    content = NeededText(help_text=f"1 to {LONGEST_MESSAGE} characters.")
    on_busy = OneOf(
        choices=OnBusy.choices,
        required=False,
        help_text="enqueue when not given; inject and interrupt need a hook with as_person",
    )
    sender = Text(
        required=False,
        allow_blank=True,
        max_length=LONGEST_SENDER,
        help_text="Who says it, on one line. It is stored in the message's metadata.",
    )


class InboundOut(Output):
    turn = serializers.IntegerField(source="pk")
    session = serializers.UUIDField(source="session_id")
    state = serializers.ChoiceField(choices=TurnState.choices)
