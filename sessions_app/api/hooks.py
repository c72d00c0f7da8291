"""Hooks of an agent, and the address at which other systems post messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app import hooks, inbound, selectors
from sessions_app.api.base import KEY, ApiView
from sessions_app.api.conditions import basis_expected, etag_with_basis
from sessions_app.api.hook_auth import HookAuthentication
from sessions_app.api.hook_shapes import (
    HookChanges,
    HookOut,
    HookWithToken,
    InboundMessage,
    InboundOut,
    NewHookIn,
)
from sessions_app.hook_tokens import token_of
from sessions_app.hooks import NewHook, add_hook
from sessions_app.inbound import Caller
from sessions_app.models import Hook, OnBusy
from sessions_app.once import Answer

HEADERS = [
    OpenApiParameter(
        "Webhook-Id",
        {"type": "string", "minLength": 1, "maxLength": inbound.LONGEST_ID, "pattern": "^[ -~]+$"},
        OpenApiParameter.HEADER,
        required=True,
        description="The message's own: the same id and body are one message, whenever it is sent.",
    ),
    OpenApiParameter(
        "Webhook-Timestamp",
        {"type": "string", "pattern": "^[0-9]{1,12}$"},
        OpenApiParameter.HEADER,
        required=True,
        description=f"Seconds since 1970, at most {inbound.MOST_SKEW} from now.",
    ),
    OpenApiParameter(
        "Webhook-Signature",
        str,
        OpenApiParameter.HEADER,
        description="See hookSignature. When there is one it must be right; more than one stand apart by spaces.",
    ),
]


class HookList(ApiView):
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=HookOut(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """The agent's hooks, the oldest first."""
        return self.page(selectors.hooks_of(self.user, name), HookOut)

    @extend_schema(parameters=[KEY], request=NewHookIn, responses={201: HookWithToken})
    def post(self, _request: Request, name: str) -> Response:
        """Make a hook. Its token is in this answer only."""
        agent = selectors.agent(self.user, name)
        given = self.read(NewHookIn)
        if (session_id := given.pop("session", None)) is not None:
            given["session_id"] = selectors.session(self.user, session_id).pk
        response = self.create(lambda: self._made(add_hook(NewHook(agent_id=agent.pk, **given))), _tag)
        return self._with_token(response)

    def _made(self, hook: Hook) -> Answer:
        """What is kept for the same Idempotency-Key is without the token."""
        body = HookOut(selectors.hook(self.user, hook.pk)).data
        return Answer(body=body, location=f"/api/hooks/{hook.pk}/")

    def _with_token(self, response: Response) -> Response:
        hook = selectors.hook(self.user, response.data["id"])
        response.data = {**response.data, "token": token_of(hook)}
        response["Cache-Control"] = "no-store"
        return response


class HookDetail(ApiView):
    @extend_schema(responses=HookOut)
    def get(self, _request: Request, hook_id: str) -> Response:
        """One hook."""
        body = HookOut(selectors.hook(self.user, hook_id)).data
        return Response(body, headers={"ETag": _tag(body)})

    @extend_schema(request=HookChanges, responses=HookOut)
    def patch(self, _request: Request, hook_id: str) -> Response:
        """Change its name, its route, whose words come by it and whether they must be signed; or switch it off."""
        revision = self._revision_expected(hook_id)
        hooks.update_hook(hook_id, self.read(HookChanges, partial=True, of=HookOut), revision=revision)
        return self.get(self.request, hook_id)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, hook_id: str) -> Response:
        """Delete a hook; what came in by it stays."""
        hooks.delete_hook(hook_id, revision=self._revision_expected(hook_id))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _revision_expected(self, hook_id: str) -> int | None:
        revision = selectors.hook(self.user, hook_id).revision
        return None if basis_expected(self.request, str(revision)) is None else revision


class HookToken(ApiView):
    @extend_schema(request=None, responses=HookWithToken)
    def post(self, _request: Request, hook_id: str) -> Response:
        """Give a hook another token, which is in this answer only; the old one is worth nothing from now on."""
        selectors.hook(self.user, hook_id)
        token = hooks.renew_token(hook_id)
        body = {**HookOut(selectors.hook(self.user, hook_id)).data, "token": token}
        return Response(body, headers={"Cache-Control": "no-store"})


def _tag(body: Mapping[str, Any]) -> str:
    """That it was used changes what is shown, and is in no edit's way."""
    return etag_with_basis(str(body["revision"]), body)


class HookMessages(ApiView):
    authentication_classes = [HookAuthentication]
    permission_classes = []  # the authentication lets nobody pass who is not known
    refuses = {"post": (409,)}

    @extend_schema(parameters=HEADERS, request=InboundMessage, responses={202: InboundOut})
    def post(self, request: Request, hook_id: str) -> Response:  # noqa: ARG002 - it is in the caller
        """Post a message; it becomes a turn, with `as_person` a person's. With the hook's token, not with a user's."""
        caller = cast("Caller", request.auth)
        inbound.check(caller)
        given = self.read(InboundMessage)
        if "on_busy" in given:
            given["on_busy"] = OnBusy(given["on_busy"])
        turn = inbound.post(caller, **given)
        headers = {"Location": f"/api/turns/{turn.pk}/"}
        return Response(InboundOut(turn).data, status=status.HTTP_202_ACCEPTED, headers=headers)
