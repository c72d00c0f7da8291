"""Who asks: a token in the header, or a browser's session."""

from __future__ import annotations

from typing import Any

from rest_framework import authentication


class TokenAuthentication(authentication.TokenAuthentication):
    """`Authorization: Token <key>`; `Bearer <key>` means the same, since many clients know only that."""

    def authenticate(self, request: Any) -> Any:
        """(user, token), or None without such a header."""
        scheme = authentication.get_authorization_header(request)[:7].lower()
        self.keyword = "Bearer" if scheme == b"bearer " else "Token"
        return super().authenticate(request)

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """What a 401 asks for."""
        return "Token"
