"""Authentication by a token in the header, and what gives a request its rights."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import User
from rest_framework import authentication
from rest_framework.authtoken.models import Token
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from sessions_app.postgres.compiled import CompiledQuery, Parameter
from sessions_app.streams.rights import Right

_TOKEN = CompiledQuery(lambda: Token.objects.select_related("user").filter(key=Parameter("key")))


class TokenAuthentication(authentication.TokenAuthentication):
    """`Authorization: Token <key>`, or `Bearer <key>` for clients that support only that."""

    def authenticate(self, request: Any) -> Any:
        """(user, token), or None without such a header."""
        scheme = authentication.get_authorization_header(request)[:7].lower()
        self.keyword = "Bearer" if scheme == b"bearer " else "Token"
        return super().authenticate(request)

    def authenticate_credentials(self, key: str) -> tuple[User, Token]:
        """The active user of the token. AuthenticationFailed."""
        token = _TOKEN.first(key=key)
        if token is None:
            raise AuthenticationFailed("Invalid token.")
        if not token.user.is_active:
            raise AuthenticationFailed("User inactive or deleted.")
        return token.user, token

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """The `WWW-Authenticate` of a 401."""
        return "Token"


def right_of(request: Request) -> Right:
    """What gave the request access: a stream checks it again while it is open."""
    user = cast("User", request.user)
    if isinstance(request.auth, Token):
        return Right(user_id=user.pk, token=request.auth.key)
    browser = request.session.session_key
    return Right(user_id=user.pk, browser=browser, password=user.password if browser else "")
