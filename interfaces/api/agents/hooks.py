"""Hooks of an agent, with the endpoint to which other systems post messages, and its Telegram bot with its chats.

The token of a bot is only read from a request, never written into an answer.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import AnonymousUser
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.shared import InSession, Revised, Texts
from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import KEY, NO_STORE, ApiView, tagged_response
from interfaces.http.fields import Flag, Input, NonBlankText, OneOf, Output, Text, TextOrNull, ToolNames
from interfaces.http.headers import etag, revision_expected
from sessions_app.exceptions import TooSoon, UnknownHook
from sessions_app.hooks import edit, inbound
from sessions_app.hooks.edit import LONGEST_NAME, NewHook, add_hook
from sessions_app.hooks.inbound import LONGEST_SENDER, Caller, Proof
from sessions_app.hooks.tokens import token_of
from sessions_app.limits.request_rate import take_allowance
from sessions_app.models import OnBusy, TelegramBot, TurnState
from sessions_app.models.session import LONGEST_ADDRESS
from sessions_app.queue.receive import LONGEST_MESSAGE
from sessions_app.reads import selectors
from sessions_app.telegram import binding, bots
from sessions_app.telegram.bots import LONGEST_TOKEN, why_unusable

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
    allow_tools = ToolNames(help_text=ALLOW_TOOLS)


class HookChanges(_HookFields):
    example = {"name": "CI", "enabled": True}
    name = NonBlankText(required=False, max_length=LONGEST_NAME)
    enabled = Flag(required=False)


class NewHookIn(_HookFields):
    example = {"name": "CI", "channel": "webhook", "address": "https://ci.example/answers"}
    name = NonBlankText(max_length=LONGEST_NAME)
    session = serializers.UUIDField(required=False, help_text="The primary session when not given.")


class HookOut(InSession, Revised):
    id = serializers.CharField()
    session = serializers.UUIDField(
        source="session_id", allow_null=True, help_text="Null: the primary session."
    )
    name = serializers.CharField()
    channel = TextOrNull(help_text=ROUTE)
    address = TextOrNull()
    signed = serializers.BooleanField()
    as_person = serializers.BooleanField(help_text=AS_PERSON)
    allow_tools = Texts(help_text=ALLOW_TOOLS)
    enabled = serializers.BooleanField()
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")


class HookWithToken(HookOut):
    token = serializers.CharField(help_text="Shown only in this answer.")


class InboundMessage(Input):
    example = {"content": "Build 7 failed.", "sender": "builder"}
    content = NonBlankText(help_text=f"1 to {LONGEST_MESSAGE} characters.")
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


HEADERS = [
    OpenApiParameter(
        "Webhook-Id",
        {"type": "string", "minLength": 1, "maxLength": inbound.LONGEST_ID, "pattern": "^[ -~]+$"},
        OpenApiParameter.HEADER,
        required=True,
        description="The id of the message. The same id and body are one message, whenever they are sent.",
    ),
    OpenApiParameter(
        "Webhook-Timestamp",
        {"type": "string", "pattern": "^[0-9]{1,12}$"},
        OpenApiParameter.HEADER,
        required=True,
        description=f"Seconds since 1970, at most {inbound.MOST_SKEW} s from now.",
    ),
    OpenApiParameter(
        "Webhook-Signature",
        str,
        OpenApiParameter.HEADER,
        description="See hookSignature. If present, it must be valid. Several are separated by spaces.",
    ),
]
SCHEME = "Bearer"


class HookAuthentication(BaseAuthentication):
    """`Authorization: Bearer rin_…`, or `Webhook-Signature` alone."""

    def authenticate(self, request: Any) -> tuple[AnonymousUser, Caller]:
        """An anonymous user and the Caller. AuthenticationFailed."""
        try:
            return AnonymousUser(), inbound.authenticate(
                request.parser_context["kwargs"]["hook_id"], _proof(request)
            )
        except UnknownHook as refusal:
            raise AuthenticationFailed(str(refusal)) from None

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """The `WWW-Authenticate` of a 401."""
        return SCHEME


def _proof(request: Any) -> Proof:
    headers = request.headers
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return Proof(
        token=token.strip() if scheme.lower() == SCHEME.lower() else "",
        message_id=headers.get("Webhook-Id", ""),
        timestamp=headers.get("Webhook-Timestamp", ""),
        signature=headers.get("Webhook-Signature", ""),
        body=request.body,
    )


class HookList(ApiView):
    scopes = {"get": READ, "post": MANAGE}
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=HookOut(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """List the agent's hooks, the oldest first."""
        return self.page(selectors.hooks_of(self.user, name), HookOut)

    @extend_schema(parameters=[KEY], request=NewHookIn, responses={201: HookWithToken})
    def post(self, _request: Request, name: str) -> Response:
        """Create a hook. Its token is in this answer only."""
        agent = selectors.agent(self.user, name)
        given = self.read(NewHookIn)
        if (session_id := given.pop("session", None)) is not None:
            selectors.shown_id(self.user, session_id)
            given["session_id"] = session_id
        new = NewHook(agent_id=agent.pk, **given)
        response = self.create(
            lambda: HookOut(selectors.hook(self.user, add_hook(new).pk)).data,
            "/api/hooks/{id}/",
            lambda body: etag(body["revision"], body),
        )
        # the answer that is stored for the Idempotency-Key is without the token
        response.data["token"] = token_of(selectors.hook(self.user, response.data["id"]))
        response["Cache-Control"] = "no-store"
        return response


class HookDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}

    @extend_schema(responses=HookOut)
    def get(self, _request: Request, hook_id: str) -> Response:
        """Get a hook."""
        hook = selectors.hook(self.user, hook_id)
        return tagged_response(HookOut(hook).data, hook.revision, is_volatile=True)

    @extend_schema(request=HookChanges, responses=HookOut)
    def patch(self, _request: Request, hook_id: str) -> Response:
        """Change name, route, `as_person`, `signed` or `allow_tools`; enable or disable it."""
        revision = self._revision_expected(hook_id)
        edit.update_hook(hook_id, self.read(HookChanges, partial=True, of=HookOut), revision=revision)
        return self.get(self.request, hook_id)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, hook_id: str) -> Response:
        """Delete a hook; its messages stay."""
        edit.delete_hook(hook_id, revision=self._revision_expected(hook_id))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _revision_expected(self, hook_id: str) -> int | None:
        return revision_expected(self.request, selectors.hook(self.user, hook_id).revision)


class HookToken(ApiView):
    scopes = {"post": MANAGE}

    @extend_schema(request=None, responses=HookWithToken)
    def post(self, _request: Request, hook_id: str) -> Response:
        """Replace the token. The new one is in this answer only, and the old one stops working at once."""
        selectors.hook(self.user, hook_id)
        token = edit.renew_token(hook_id)
        body = {**HookOut(selectors.hook(self.user, hook_id)).data, "token": token}
        return Response(body, headers=NO_STORE)


class HookMessages(ApiView):
    authentication_classes = [HookAuthentication]
    permission_classes = []  # HookAuthentication rejects everybody else
    refuses = {"post": (409,)}

    @extend_schema(parameters=HEADERS, request=InboundMessage, responses={202: InboundOut})
    def post(self, request: Request, hook_id: str) -> Response:  # noqa: ARG002 - HookAuthentication read it
        """Post a message, authenticated as the hook, not as a user. It becomes a turn."""
        caller = cast("Caller", request.auth)
        inbound.check_post(caller)
        given = self.read(InboundMessage)
        if "on_busy" in given:
            given["on_busy"] = OnBusy(given["on_busy"])
        turn = inbound.post(caller, **given)
        headers = {"Location": f"/api/turns/{turn.pk}/"}
        return Response(InboundOut(turn).data, status=status.HTTP_202_ACCEPTED, headers=headers)


BOT_TOKEN = "The token that BotFather gave. It is stored encrypted and never shown."  # noqa: S105 - about it


class BotChanges(Input):
    example = {"enabled": False}
    token = Text(required=False, max_length=LONGEST_TOKEN, help_text=BOT_TOKEN)
    enabled = Flag(required=False, help_text="Whether its messages are read and answers are sent.")


class NewBot(Input):
    example = {"token": "123456789:AAF-the-token-that-BotFather-gave-you"}
    token = Text(max_length=LONGEST_TOKEN, help_text=BOT_TOKEN)


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
