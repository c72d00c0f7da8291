"""Deliveries: their states, sending dead letters again, and the key that signs webhooks."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.shared import InSession, SentOut
from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import NO_STORE, ApiView
from interfaces.http.fields import Output, TextOrNull
from interfaces.http.query import SESSION, Parameter, agent_parameter, search_parameter, time_parameters
from sessions_app.channels import webhook
from sessions_app.channels.base import all_names
from sessions_app.deliveries import outbox
from sessions_app.deliveries.system_events import EventName
from sessions_app.models import Delivery, DeliveryState
from sessions_app.reads import selectors
from sessions_app.sessions import history

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
    reason = TextOrNull(allow_null=True, help_text="Why it was withheld or closed.")
    last_error = TextOrNull(allow_null=True)
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
            *(
                agent_parameter("session__agent__name"),
                SESSION,
                STATE,
                Parameter(name="channel", longest=64, known=all_names),
            ),
            Parameter(name="reason", longest=300, description="As `reason` of the delivery says it."),
            *time_parameters("created_at"),
            search_parameter("the address"),
        )
    }

    @extend_schema(responses=DeliveryOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your deliveries in all sessions, the newest first."""
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
