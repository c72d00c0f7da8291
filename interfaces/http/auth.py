"""Authentication by a token in the header or a ticket in the address, and the scope that an operation needs.

A view declares the scope for each method; methods without one are refused.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import User
from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions_app.exceptions import BeyondLimit, InsufficientScope
from sessions_app.models import ApiToken, TokenScope
from sessions_app.queue.threads import target_ids
from sessions_app.streams.rights import Right
from sessions_app.tokens.issue import find_token, note_use
from sessions_app.tokens.reach import Limit, limit_of, put_limit
from sessions_app.tokens.tickets import redeem_ticket

TICKET = "ticket"  # the query parameter
READ, TALK, SCHEDULE, MANAGE = TokenScope.READ, TokenScope.TALK, TokenScope.SCHEDULE, TokenScope.MANAGE


class TokenAuthentication(authentication.TokenAuthentication):
    """`Authorization: Token <token>`, or `Bearer <token>` for clients that support only that."""

    def authenticate(self, request: Any) -> Any:
        """(user, token), or None without such a header."""
        scheme = authentication.get_authorization_header(request)[:7].lower()
        self.keyword = "Bearer" if scheme == b"bearer " else "Token"
        return super().authenticate(request)

    def authenticate_credentials(self, key: str) -> tuple[User, ApiToken]:
        """The active user of the token, with the token's limit. AuthenticationFailed."""
        return _accepted(find_token(key), "The token is not valid: it is unknown, expired or revoked.")

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """The `WWW-Authenticate` of a 401."""
        return "Token"


class TicketAuthentication(authentication.BaseAuthentication):
    """Authenticates by `?ticket=…`, for event streams only, and only without a token in the header."""

    def authenticate(self, request: Any) -> tuple[User, ApiToken] | None:
        """(user, token), or None without a ticket. AuthenticationFailed; a ticket that was read is used up."""
        given = request.query_params.getlist(TICKET)
        if len(given) != 1:  # a repeated parameter is refused as any other
            return None
        token = redeem_ticket(given[0])
        return _accepted(
            token, "The ticket is not valid: it was used, has expired, or its token is not valid."
        )


def _accepted(token: ApiToken | None, refusal: str) -> tuple[User, ApiToken]:
    if token is None:
        raise AuthenticationFailed(refusal)
    session_id = token.session_id
    shown_id = None if session_id is None else target_ids([session_id]).get(session_id)
    put_limit(token.user, Limit(agent_id=token.agent_id, session_id=session_id, shown_id=shown_id))
    note_use(token)
    return token.user, token


def right_of(request: Request) -> Right:
    """The token, ticket or sign-in that gave the request access. A stream checks it again while it is open."""
    user = cast("User", request.user)
    token = request.auth
    if isinstance(token, ApiToken):
        only = limit_of(user).session_id
        return Right(
            user_id=user.pk,
            token=token.pk,
            expires_at=token.expires_at,
            only=only,
            is_limited=token.is_limited,
        )
    browser = request.session.session_key
    return Right(user_id=user.pk, browser=browser, password=user.password if browser else "")


def required_scope(view: Any, method: str) -> TokenScope | None:
    """The declared scope of a method of the view; HEAD has that of GET."""
    scope: TokenScope | None = view.scopes.get(_as_declared(method))
    return scope


def _as_declared(method: str) -> str:
    return "get" if method == "head" else method


class HasScope(BasePermission):
    """The token has the scope of the operation. A person who is signed in needs none."""

    def has_permission(self, request: Any, view: Any) -> bool:
        """InsufficientScope, BeyondLimit. False for credentials of another kind."""
        token, method = request.auth, request.method.lower()
        if token is None or method not in view.http_method_names or not hasattr(view, method):  # then 405
            return True
        if not isinstance(token, ApiToken):
            return False
        scope = required_scope(view, method)
        if scope is None:
            raise InsufficientScope("no token allows this")
        if not token.allows(scope):
            raise InsufficientScope(
                f"this needs the scope {scope.value}; the token has {', '.join(token.scopes)}"
            )
        if token.is_limited and not view.kwargs and _as_declared(method) not in view.within_limits:
            raise BeyondLimit
        return True
