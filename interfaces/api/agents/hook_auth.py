"""Authentication of posts to hooks: by the hook's token, or a signature made with it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed

from sessions_app.exceptions import UnknownHook
from sessions_app.hooks import inbound
from sessions_app.hooks.inbound import Caller, Proof

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
