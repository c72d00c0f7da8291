"""Hooks of an agent, and the endpoint to which other systems post messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.agents.hook_auth import HookAuthentication
from interfaces.api.agents.hook_serializers import (
    HookChanges,
    HookOut,
    HookWithToken,
    InboundMessage,
    InboundOut,
    NewHookIn,
)
from interfaces.http.base import KEY, ApiView
from interfaces.http.headers import basis_expected, etag_with_basis
from interfaces.http.scopes import MANAGE, READ
from sessions_app.hooks import edit, inbound
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.hooks.inbound import Caller
from sessions_app.hooks.tokens import token_of
from sessions_app.idempotency import StoredAnswer
from sessions_app.models import Hook, OnBusy
from sessions_app.reads import selectors

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


class HookList(ApiView):
    scopes = {"get": READ, "post": MANAGE}
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=HookOut(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """The agent's hooks, the oldest first."""
        return self.page(selectors.hooks_of(self.user, name), HookOut)

    @extend_schema(parameters=[KEY], request=NewHookIn, responses={201: HookWithToken})
    def post(self, _request: Request, name: str) -> Response:
        """Create a hook. Its token is in this answer only."""
        agent = selectors.agent(self.user, name)
        given = self.read(NewHookIn)
        if (session_id := given.pop("session", None)) is not None:
            selectors.shown_id(self.user, session_id)
            given["session_id"] = session_id
        response = self.create(lambda: self._made(add_hook(NewHook(agent_id=agent.pk, **given))), _tag)
        hook = selectors.hook(self.user, response.data["id"])
        response.data = {**response.data, "token": token_of(hook)}
        response["Cache-Control"] = "no-store"
        return response

    def _made(self, hook: Hook) -> StoredAnswer:
        """The answer that is stored for the Idempotency-Key: without the token."""
        body = HookOut(selectors.hook(self.user, hook.pk)).data
        return StoredAnswer(body=body, location=f"/api/hooks/{hook.pk}/")


class HookDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}

    @extend_schema(responses=HookOut)
    def get(self, _request: Request, hook_id: str) -> Response:
        """One hook."""
        body = HookOut(selectors.hook(self.user, hook_id)).data
        return Response(body, headers={"ETag": _tag(body)})

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
        revision = selectors.hook(self.user, hook_id).revision
        return None if basis_expected(self.request, str(revision)) is None else revision


class HookToken(ApiView):
    scopes = {"post": MANAGE}

    @extend_schema(request=None, responses=HookWithToken)
    def post(self, _request: Request, hook_id: str) -> Response:
        """Replace the token. The new one is in this answer only, and the old one stops working at once."""
        selectors.hook(self.user, hook_id)
        token = edit.renew_token(hook_id)
        body = {**HookOut(selectors.hook(self.user, hook_id)).data, "token": token}
        return Response(body, headers={"Cache-Control": "no-store"})


def _tag(body: Mapping[str, Any]) -> str:
    """The ETag. A new `last_used_at` changes it, but does not make an edit fail."""
    return etag_with_basis(str(body["revision"]), body)


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
