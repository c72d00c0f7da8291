"""Deliveries: whether what a session says reached people outside; dead letters, and the key that signs webhooks."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import deliver, selectors, signing
from sessions_app.api.base import ApiView, shown
from sessions_app.api.shapes import Output, SentOut, TextOrNull
from sessions_app.exceptions import BadInput
from sessions_app.models import DeliveryState


class DeliveryOut(SentOut):
    session = serializers.UUIDField(source="session_id")
    session_key = serializers.CharField()
    seq = serializers.IntegerField(allow_null=True, help_text="Of the message.")
    turn = serializers.IntegerField(allow_null=True)
    address = serializers.CharField()
    key = serializers.CharField(source="idempotency_key", help_text="By which the receiver knows it.")
    reason = TextOrNull(allow_null=True, help_text="Why it is kept back.")
    last_error = TextOrNull(allow_null=True)
    next_attempt_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class SecretOut(Output):
    secret = serializers.CharField(help_text="`whsec_…`, for the Standard Webhooks scheme.")


class DeliveryList(ApiView):
    ordering = ("-id",)

    @extend_schema(
        parameters=[OpenApiParameter("state", str, enum=DeliveryState.values)],
        responses=DeliveryOut(many=True),
    )
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """What left or is to leave the server, the newest first."""
        rows = selectors.deliveries_of(self.user, session_id)
        state = self.parameter("state")
        if state is not None and state not in DeliveryState.values:
            raise BadInput(f"state must be one of {', '.join(DeliveryState.values)}", code="bad_parameter")
        return self.page(rows.filter(state=state) if state else rows, DeliveryOut)


class DeliveryDetail(ApiView):
    @extend_schema(responses=DeliveryOut)
    def get(self, _request: Request, delivery_id: int) -> Response:
        """One delivery."""
        return shown(DeliveryOut(selectors.delivery(self.user, delivery_id)).data)


class Redelivery(ApiView):
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses={202: DeliveryOut})
    def post(self, _request: Request, delivery_id: int) -> Response:
        """Take up a dead letter anew, with all its attempts; the receiver sees the same key."""
        deliver.send_again(selectors.delivery(self.user, delivery_id).pk)
        body = DeliveryOut(selectors.delivery(self.user, delivery_id)).data
        return Response(body, status=status.HTTP_202_ACCEPTED)


class SigningSecret(ApiView):
    @extend_schema(responses=SecretOut)
    def get(self, _request: Request, name: str) -> Response:
        """The key that signs the agent's webhooks."""
        response = shown({"secret": signing.secret_of(selectors.agent(self.user, name).pk)})
        response["Cache-Control"] = "no-store"
        return response

    @extend_schema(request=None, responses=SecretOut)
    def post(self, _request: Request, name: str) -> Response:
        """Another key from now on."""
        secret = signing.new_secret_of(selectors.agent(self.user, name).pk)
        return Response({"secret": secret}, headers={"Cache-Control": "no-store"})
