"""Serializers of Telegram bots. The token is only read from a request, never written into an answer."""

from __future__ import annotations

from rest_framework import serializers

from interfaces.http.fields import Flag, Input, Output, Text
from sessions_app.models import TelegramBot
from sessions_app.telegram.bots import LONGEST_TOKEN, why_unusable

TOKEN = "The token that BotFather gave. It is stored encrypted and never shown."  # noqa: S105 - about it


class BotChanges(Input):
    example = {"enabled": False}
    token = Text(required=False, max_length=LONGEST_TOKEN, help_text=TOKEN)
    enabled = Flag(required=False, help_text="Whether its messages are read and answers are sent.")


class NewBot(Input):
    example = {"token": "123456789:AAF-the-token-that-BotFather-gave-you"}
    token = Text(max_length=LONGEST_TOKEN, help_text=TOKEN)


class BotOut(Output):
    agent = serializers.CharField(source="agent.name")
    username = serializers.CharField(help_text="Its name at Telegram, without @.")
    enabled = serializers.BooleanField()
    problem = serializers.SerializerMethodField(help_text="Why its messages are not read; empty if they are.")
    state_since = serializers.DateTimeField(
        allow_null=True, help_text="When reading began to succeed, or to fail."
    )
    revision = serializers.IntegerField()
    created_at = serializers.DateTimeField()

    def get_problem(self, bot: TelegramBot) -> str:
        return why_unusable(bot)


class CodeOut(Output):
    code = serializers.CharField(help_text="For the message `/start <code>`. Shown only in this answer.")
    link = serializers.CharField(help_text="An address that opens the chat and sends the code.")


class ChatOut(Output):
    chat_id = serializers.IntegerField()
    name = serializers.CharField(help_text="The person's name at Telegram when the chat was connected.")
    connected_at = serializers.DateTimeField()
    blocked_at = serializers.DateTimeField(
        allow_null=True, help_text="Since when the person blocks the bot, as far as it is known."
    )
