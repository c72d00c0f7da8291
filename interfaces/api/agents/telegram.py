"""The Telegram bot of an agent, codes that connect chats, and the connected chats.

The token is only read from a request, never written into an answer.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.shared import Revised
from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import KEY, NO_STORE, ApiView, tagged_response
from interfaces.http.fields import Flag, Input, Output, Text
from interfaces.http.headers import revision_expected
from sessions_app.exceptions import TooSoon
from sessions_app.limits.request_rate import take_allowance
from sessions_app.models import TelegramBot
from sessions_app.reads import selectors
from sessions_app.telegram import binding, bots
from sessions_app.telegram.bots import LONGEST_TOKEN, why_unusable

TOKEN = "The token that BotFather gave. It is stored encrypted and never shown."  # noqa: S105 - about it


class BotChanges(Input):
    example = {"enabled": False}
    token = Text(required=False, max_length=LONGEST_TOKEN, help_text=TOKEN)
    enabled = Flag(required=False, help_text="Whether its messages are read and answers are sent.")


class NewBot(Input):
    example = {"token": "123456789:AAF-the-token-that-BotFather-gave-you"}
    token = Text(max_length=LONGEST_TOKEN, help_text=TOKEN)


class BotOut(Revised):
    agent = serializers.CharField(source="agent.name")
    username = serializers.CharField(help_text="Its name at Telegram, without @.")
    enabled = serializers.BooleanField()
    problem = serializers.SerializerMethodField(help_text="Why its messages are not read; empty if they are.")
    state_since = serializers.DateTimeField(
        allow_null=True, help_text="When reading began to succeed, or to fail."
    )

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


class AgentTelegram(ApiView):
    scopes = {"get": READ, "post": MANAGE, "patch": MANAGE, "delete": MANAGE}
    refuses = {"post": (409,), "patch": (409,)}

    @extend_schema(responses=BotOut)
    def get(self, _request: Request, name: str) -> Response:
        """Get the agent's Telegram bot, without its token. 404 if it has none."""
        bot = bots.bot_of(self.user, name)
        return tagged_response(BotOut(bot).data, bot.revision, is_volatile=True)

    @extend_schema(parameters=[KEY], request=NewBot, responses={201: BotOut})
    def post(self, _request: Request, name: str) -> Response:
        """Give the agent a bot. Telegram is asked whether it knows the token."""
        agent = selectors.agent(self.user, name)
        checked = self._checked(self.read(NewBot)["token"])
        return self.create(lambda: BotOut(bots.add_bot(agent, checked)).data, "/api/agents/{agent}/telegram/")

    @extend_schema(request=BotChanges, responses=BotOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Replace the token, or switch the bot on or off. The token of another bot disconnects the chats."""
        bot = bots.bot_of(self.user, name)
        revision = revision_expected(self.request, bot.revision)
        given: dict[str, Any] = self.read(BotChanges, partial=True, of=BotOut)
        if "token" in given:
            given["checked"] = self._checked(given.pop("token"))
        bots.update_bot(bot.pk, **given, revision=revision)
        return self.get(self.request, name)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, name: str) -> Response:
        """Delete the bot, which disconnects its chats. Their conversations stay."""
        bot = bots.bot_of(self.user, name)
        bots.delete_bot(bot.pk, revision=revision_expected(self.request, bot.revision))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _checked(self, token: str) -> bots.CheckedToken:
        if wait := take_allowance(f"test-telegram:{self.user.pk}", bots.TESTS):
            raise TooSoon(f"Too many tokens were tried; try again in {wait:.0f} seconds.")
        return bots.check_token(token)


class TelegramCode(ApiView):
    scopes = {"post": MANAGE}

    @extend_schema(request=None, responses=CodeOut)
    def post(self, _request: Request, name: str) -> Response:
        """Make a code that connects one chat, once, within ten minutes. The one before it stops working."""
        code = binding.issue_code(bots.bot_of(self.user, name).pk)
        return Response(CodeOut(code).data, headers=NO_STORE)


class TelegramChatList(ApiView):
    scopes = {"get": READ}
    ordering = ("connected_at", "id")

    @extend_schema(responses=ChatOut(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """List the connected chats, the oldest first."""
        return self.page(bots.chats_of(bots.bot_of(self.user, name)), ChatOut)


class TelegramChatDetail(ApiView):
    scopes = {"delete": MANAGE}

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, name: str, chat_id: int) -> Response:
        """Disconnect a chat. Its conversation stays."""
        binding.disconnect(bots.bot_of(self.user, name).pk, chat_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
