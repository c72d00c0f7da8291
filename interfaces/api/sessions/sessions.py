"""Sessions, their mailbox, and deliveries: their states, sending dead letters again, the key that signs webhooks."""

from __future__ import annotations

import uuid

from django.db import transaction
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.execution import WAITING
from interfaces.api.shared import (
    DELETE_AUTOMATIONS,
    AskedCallOut,
    BlockedOut,
    DeletedOut,
    InSession,
    SentOut,
    Texts,
    deleted,
)
from interfaces.http.auth import MANAGE, READ, TALK
from interfaces.http.base import KEY, NO_STORE, ApiView
from interfaces.http.fields import (
    AnyObject,
    Flag,
    Input,
    LineField,
    OneOf,
    Output,
    Text,
    TextOrNull,
)
from interfaces.http.headers import etag_of, expected
from interfaces.http.query import SESSION, Parameter, agent_parameter, search_parameter, time_parameters
from sessions_app.channels import webhook
from sessions_app.channels.base import all_names, why_unserved
from sessions_app.deliveries import outbox
from sessions_app.deliveries.system_events import EventName
from sessions_app.models import ChatType, Delivery, DeliveryState, Priority, Session, SessionType
from sessions_app.models.session import WEB
from sessions_app.reads import selectors
from sessions_app.sessions import history
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import (
    LONGEST_KEY,
    archive_session,
    change_chat,
    open_session,
    rename_session,
    unarchive_session,
)
from sessions_app.single_line import check_line

SESSION_STATES = ["active", "idle", "archived", "deleting"]
LONGEST_PREVIEW = 100  # characters
ADDRESS = "Where answers go: a URL, a mailbox…, as the channel defines it."
CHANNEL_META = "Metadata for the channel, such as a topic or a thread: texts, whole numbers, true or false."
MAIL_STATES = ["pending", "acknowledged", "dropped"]


class NewSession(Input):
    example = {"agent": "demo", "title": "Trip to Lisbon"}
    agent = Text(help_text="The name of one of your agents.")
    key = Text(required=False, help_text="`<channel>:<id>`; generated when not given.")
    channel = Text(required=False)
    chat_type = OneOf(choices=ChatType.choices, required=False)
    title = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, allow_blank=True, help_text=ADDRESS)
    channel_meta = AnyObject(required=False, help_text=CHANNEL_META)


class SessionChanges(Input):
    example = {"title": "Trip to Porto"}
    title = Text(required=False, allow_blank=True, max_length=200)
    address = Text(required=False, help_text="Where answers go from now on, also those not yet sent.")
    channel_meta = AnyObject(required=False, help_text=f"{CHANNEL_META} It replaces all of the old metadata.")
    chat_type = OneOf(choices=ChatType.choices, required=False)
    archived = Flag(
        required=False,
        help_text="Whether the conversation is archived: it can be read, takes no messages, and its automations do"
        " not run. False opens it again.",
    )


class WaitingOut(Output):
    execution = serializers.CharField(
        allow_null=True, help_text="The execution that waits for the answer; null in a chat."
    )
    question_id = TextOrNull()
    question = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in WAITING])
    asked_at = serializers.DateTimeField()
    calls = AskedCallOut(
        many=True, help_text="The calls that a yes allows; empty when the question is not about consent."
    )


class SessionOut(Output):
    id = serializers.UUIDField()
    key = serializers.CharField()
    type = serializers.ChoiceField(choices=SessionType.choices)
    agent = serializers.CharField(source="agent_name")
    state = serializers.ChoiceField(choices=SESSION_STATES, source="shown_state")
    revision = serializers.IntegerField()
    channel = serializers.CharField()
    address = serializers.SerializerMethodField(help_text=f"{ADDRESS} Null on the web.")
    chat_type = serializers.ChoiceField(choices=ChatType.choices)
    channel_meta = serializers.DictField(help_text=CHANNEL_META)
    title = serializers.CharField()
    preview = LineField(
        LONGEST_PREVIEW,
        source="last_words",
        help_text=f"The first {LONGEST_PREVIEW} characters of the last message; not an automation's trigger.",
    )
    waiting = WaitingOut(
        many=True,
        source="waiting.shown",
        read_only=True,
        help_text="Open questions of its agent, the newest first: at most 20, of 1 MB together, but at least one.",
    )
    more_waiting = serializers.BooleanField(
        source="waiting.is_more",
        read_only=True,
        help_text="Whether older questions wait that `waiting` has no room for.",
    )
    warnings = serializers.SerializerMethodField(
        help_text="Why its answers cannot be delivered; empty when they can."
    )
    created_at = serializers.DateTimeField()

    def get_warnings(self, session: Session) -> list[str]:
        reason = why_unserved(session.standing_route, session.agent_id)
        return [reason] if reason else []

    def get_address(self, session: Session) -> str | None:
        return None if session.channel == WEB else session.chat_id


class MailOut(InSession):
    event_id = serializers.UUIDField()
    session = serializers.UUIDField(source="target_id", help_text="The session that got it.")
    event_type = serializers.CharField()
    source_key = serializers.CharField(help_text="The key of the session that it reports on.")
    source_session = serializers.UUIDField(
        allow_null=True, help_text="The id of that session; null once it is deleted."
    )
    summary = serializers.CharField()
    detail = serializers.CharField()
    artifacts = Texts()
    priority = serializers.ChoiceField(choices=Priority.choices)
    state = serializers.ChoiceField(choices=MAIL_STATES)
    reason = TextOrNull()
    turn = serializers.IntegerField(source="acknowledged_by_id", allow_null=True)


class SessionList(ApiView):
    scopes = {"get": READ, "post": TALK}
    within_limits = {"get", "post"}
    ordering = ("-place",)
    refuses = {"post": (404, 409)}
    takes = {
        "get": (
            agent_parameter("agent__name"),
            Parameter(name="key", longest=LONGEST_KEY),
            Parameter(name="type", choices=tuple(SessionType.values)),
            Parameter(name="state", choices=tuple(SESSION_STATES), lookup="shown_state"),
            *time_parameters("created_at"),
            search_parameter("the title"),
        )
    }

    @extend_schema(responses=SessionOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your sessions, the newest first."""
        rows = selectors.sessions(self.user, self.wanted(), self.term)
        return self.page(rows, SessionOut)

    @extend_schema(parameters=[KEY], request=NewSession, responses={201: SessionOut})
    def post(self, _request: Request) -> Response:
        """Open a session of one of your agents."""
        given = self.read(NewSession)
        check_line("title", given.get("title", ""))
        agent = selectors.agent(self.user, given.pop("agent"))
        return self.create(
            lambda: SessionOut(selectors.session(self.user, open_session(agent, **given).pk)).data,
            "/api/sessions/{id}/",
            etag_of,
        )


class SessionDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}
    refuses = {"patch": (409,), "delete": (409,)}
    takes = {"delete": (DELETE_AUTOMATIONS,)}

    @extend_schema(responses=SessionOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Get a session."""
        shown = SessionOut(selectors.session(self.user, session_id)).data
        return Response(shown, headers={"ETag": etag_of(shown)})

    @extend_schema(request=SessionChanges, responses=SessionOut)
    def patch(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Change title, address, `channel_meta` or `chat_type`; archive it or open it again.

        The revision counts commits of turns, so it stays.
        """
        with transaction.atomic():
            # locked, so that its ETag stays the same until the change
            session = selectors.session(self.user, session_id, lock=True)
            given = self.read(SessionChanges, of=SessionOut)
            check_line("title", given.get("title", ""))
            expected(self.request, etag_of(SessionOut(session).data))
            if "title" in given:
                rename_session(session.pk, given.pop("title"))
            if "archived" in given:
                change = archive_session if given.pop("archived") else unarchive_session
                change(session)
            if given:
                change_chat(session.pk, **given)
        return self.get(self.request, session_id)

    @extend_schema(responses={200: DeletedOut, 409: BlockedOut})
    def delete(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Delete a session with its history. 409 when automations are bound to it."""
        session = selectors.session(self.user, session_id)
        expected(self.request, etag_of(SessionOut(session).data))
        return deleted(delete_session(session.pk, with_dependents=self.is_true("delete_automations")))


class Mailbox(ApiView):
    scopes = {"get": READ}
    ordering = ("-id",)

    @extend_schema(responses=MailOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List the updates that the session got from other sessions, the newest first."""
        return self.page(selectors.mailbox(self.user, session_id), MailOut)


STATE = Parameter(name="state", choices=tuple(DeliveryState.values))


class DeliveryOut(SentOut, InSession):
    session_key = serializers.CharField()
    seq = serializers.IntegerField(
        allow_null=True, help_text="The `seq` of the message; null for a system event."
    )
    event = serializers.SerializerMethodField(help_text="The type of a system event; null for a message.")
    turn = serializers.IntegerField(allow_null=True)
    address = serializers.CharField()
    key = serializers.CharField(
        source="idempotency_key", help_text="The same in every attempt; receivers recognize repeats by it."
    )
    reason = TextOrNull(help_text="Why it was withheld or closed.")
    last_error = TextOrNull()
    next_attempt_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field({"type": "string", "nullable": True, "enum": [*EventName, None]})
    def get_event(self, delivery: Delivery) -> str | None:
        """The type alone: the data of an event are for its receiver."""
        return str(delivery.event["type"]) if delivery.event else None


class SecretOut(Output):
    secret = serializers.CharField(help_text="`whsec_…`, for the Standard Webhooks scheme.")


class DeliveryList(ApiView):
    scopes = {"get": READ}
    ordering = ("-id",)

    takes = {"get": (STATE,)}

    @extend_schema(responses=DeliveryOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List the session's deliveries, the newest first."""
        rows = history.deliveries_of(self.user, session_id).filter(**self.wanted())
        return self.page(rows, DeliveryOut)


class DeliveriesOfUser(ApiView):
    scopes = {"get": READ}
    within_limits = {"get"}
    ordering = ("-place",)
    takes = {
        "get": (
            *(agent_parameter("session__agent__name"), SESSION, STATE),
            Parameter(name="channel", longest=64),
            Parameter(name="reason", longest=300, description="As `reason` of the delivery says it."),
            *time_parameters("created_at"),
            search_parameter("the address"),
        )
    }

    @extend_schema(responses=DeliveryOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your deliveries in all sessions, the newest first."""
        self.check_value("channel", all_names(), lambda only: history.deliveries_of_user(self.user, only))
        return self.page(history.deliveries_of_user(self.user, self.wanted(), self.term), DeliveryOut)


class DeliveryDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=DeliveryOut)
    def get(self, _request: Request, delivery_id: int) -> Response:
        """Get a delivery."""
        return Response(DeliveryOut(history.delivery(self.user, delivery_id)).data)


class Redelivery(ApiView):
    scopes = {"post": MANAGE}
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses={202: DeliveryOut})
    def post(self, _request: Request, delivery_id: int) -> Response:
        """Send a failed delivery again, with all attempts and the same key."""
        outbox.send_again(history.delivery(self.user, delivery_id).pk)
        body = DeliveryOut(history.delivery(self.user, delivery_id)).data
        return Response(body, status=status.HTTP_202_ACCEPTED)


class SigningSecret(ApiView):
    scopes = {"get": MANAGE, "post": MANAGE}

    @extend_schema(responses=SecretOut)
    def get(self, _request: Request, name: str) -> Response:
        """Get the key that signs the agent's webhooks."""
        secret = webhook.secret_of(selectors.agent(self.user, name).pk)
        return Response({"secret": secret}, headers=NO_STORE)

    @extend_schema(request=None, responses=SecretOut)
    def post(self, _request: Request, name: str) -> Response:
        """Replace the signing key."""
        secret = webhook.new_secret_of(selectors.agent(self.user, name).pk)
        return Response({"secret": secret}, headers=NO_STORE)
