"""The shapes of hooks and of what is posted by them."""

from __future__ import annotations

from rest_framework import serializers

from sessions_app.api.fields import Flag, Input, OneOf, Text
from sessions_app.api.shapes import Output, TextOrNull
from sessions_app.hooks import LONGEST_NAME
from sessions_app.inbound import LONGEST_SENDER
from sessions_app.models import OnBusy, TurnState
from sessions_app.models.session import LONGEST_ADDRESS
from sessions_app.receive import LONGEST_MESSAGE

ROUTE = "Answers to what comes in by this hook go there; empty: where the session's own go."
AS_PERSON = "Whether its messages are a person's, as from a bridge of a chat service."


class HookChanges(Input):
    name = Text(required=False, allow_blank=True, max_length=LONGEST_NAME)
    channel = Text(required=False, allow_blank=True, help_text=ROUTE)
    address = Text(required=False, allow_blank=True, max_length=LONGEST_ADDRESS)
    signed = Flag(required=False, help_text="Whether it takes signed messages only.")
    as_person = Flag(required=False, help_text=AS_PERSON)
    enabled = Flag(required=False)


class NewHookIn(Input):
    name = Text(allow_blank=True, max_length=LONGEST_NAME)
    session = serializers.UUIDField(required=False, help_text="The primary one when it is not given.")
    channel = Text(required=False, allow_blank=True, help_text=ROUTE)
    address = Text(required=False, allow_blank=True, max_length=LONGEST_ADDRESS)
    signed = Flag(required=False, help_text="Whether it takes signed messages only.")
    as_person = Flag(required=False, help_text=AS_PERSON)


class HookOut(Output):
    id = serializers.CharField()
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(source="session_id", allow_null=True, help_text="Null: the primary one.")
    name = serializers.CharField()
    channel = TextOrNull(allow_null=True, help_text=ROUTE)
    address = TextOrNull(allow_null=True)
    signed = serializers.BooleanField()
    as_person = serializers.BooleanField(help_text=AS_PERSON)
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revision = serializers.IntegerField()


class HookWithToken(HookOut):
    token = serializers.CharField(help_text="Shown now and never again.")


class InboundMessage(Input):
    content = Text(allow_blank=True, help_text=f"1 to {LONGEST_MESSAGE} characters.")
    on_busy = OneOf(
        choices=OnBusy.choices,
        required=False,
        help_text="enqueue when it is not given; inject takes a hook with as_person",
    )
    sender = Text(
        required=False,
        allow_blank=True,
        max_length=LONGEST_SENDER,
        help_text="Who says it, on one line; stands in the message's metadata.",
    )


class InboundOut(Output):
    turn = serializers.IntegerField(source="pk")
    session = serializers.UUIDField(source="session_id")
    state = serializers.ChoiceField(choices=TurnState.choices)
