"""Which scope an operation needs. A view declares it for each method; what is not declared is refused."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission

from sessions_app.exceptions import BeyondLimit, InsufficientScope
from sessions_app.models import ApiToken, TokenScope

READ, TALK, SCHEDULE, MANAGE = TokenScope.READ, TokenScope.TALK, TokenScope.SCHEDULE, TokenScope.MANAGE


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
        if scope is None or not token.allows(scope):
            raise InsufficientScope(_refusal(token, scope))
        if token.is_limited and not view.kwargs and _as_declared(method) not in view.within_limits:
            raise BeyondLimit
        return True


def _refusal(token: ApiToken, scope: TokenScope | None) -> str:
    if scope is None:
        return "no token allows this"
    return f"this needs the scope {scope.value}; the token has {', '.join(token.scopes)}"
