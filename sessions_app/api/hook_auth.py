"""Who posts by a hook: the hook's own token, or a signature made with it; no user's."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed

from sessions_app import inbound
from sessions_app.exceptions import UnknownHook
from sessions_app.inbound import Caller, Proof

SCHEME = "Bearer"


class HookAuthentication(BaseAuthentication):
    """`Authorization: Bearer rin_…`, or `Webhook-Signature` alone."""

    def authenticate(self, request: Any) -> tuple[AnonymousUser, Caller]:
        """(nobody, who calls). AuthenticationFailed."""
        try:
            return AnonymousUser(), inbound.authenticate(
                request.parser_context["kwargs"]["hook_id"], _proof(request)
            )
        except UnknownHook as refusal:
            raise AuthenticationFailed(str(refusal)) from None

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """What a 401 asks for."""
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
