"""The throttle of the API's views, which DRF calls before each, and of the pages. It counts in the database."""

from __future__ import annotations

from math import ceil
from typing import Any

from django.conf import settings
from rest_framework.throttling import BaseThrottle

from interfaces.http.client_address import network_of
from sessions_app.hooks.inbound import Caller
from sessions_app.limits.request_rate import Rate, Taken, count_request
from sessions_app.models import ApiToken
from sessions_app.tokens.reach import share_of_limited

NAME = "requests"  # of the policy; structured fields have names


class Throttle(BaseThrottle):
    """Limits each user, each hook, and each address without a token, to RONDO_THROTTLE over all web processes.

    A token of one agent or session is counted by itself first: it has half of its user's rate at most.
    """

    _wait: float | None = None

    def allow_request(self, request: Any, view: Any) -> bool:  # noqa: ARG002 - the signature is DRF's
        """Count the request; whether it is allowed."""
        if settings.RONDO_THROTTLE is None:
            return True
        limit, seconds = settings.RONDO_THROTTLE
        whole, token = Rate(limit=limit, seconds=seconds), request.auth
        if isinstance(token, ApiToken) and token.is_limited:
            share = count_request(f"token:{token.pk}", Rate(limit=share_of_limited(limit), seconds=seconds))
            taken = share if share.wait else _tighter(share, count_request(self._key(request), whole))
        else:
            taken = count_request(self._key(request), whole)
        self._wait = taken.wait
        # the middleware adds them to whatever answer becomes of the request
        request._request.rate_limit_headers = rate_limit_headers(taken)  # noqa: SLF001 - Django's request
        return not taken.wait

    def wait(self) -> float | None:
        """Seconds for Retry-After."""
        return self._wait

    def _key(self, request: Any) -> str:
        if isinstance(request.auth, Caller):
            return f"hook:{request.auth.hook.pk}"
        return _key_of(request.user, self.get_ident(request))


def _key_of(user: Any, address: str | None) -> str:
    return f"user:{user.pk}" if user.is_authenticated else f"address:{network_of(address or '')}"


def count_page(request: Any) -> float:
    """Count the request for a page with those of the API. Returns 0 when it is allowed, else the seconds to wait."""
    if settings.RONDO_THROTTLE is None:
        return 0
    limit, seconds = settings.RONDO_THROTTLE
    key = _key_of(request.user, request.META.get("REMOTE_ADDR"))
    taken = count_request(key, Rate(limit=limit, seconds=seconds))
    request.rate_limit_headers = rate_limit_headers(taken)
    return taken.wait


def _tighter(share: Taken, of_user: Taken) -> Taken:
    """The allowance that is used up first, for the headers."""
    return of_user if of_user.wait or of_user.remaining < share.remaining else share


def rate_limit_headers(taken: Taken) -> dict[str, str]:
    """`RateLimit-Policy` and `RateLimit` of the draft of the IETF: the limit, and what is left of it.

    `t` is when the whole limit is available again; `Retry-After` of a 429 says when one request is.
    """
    return {
        "RateLimit-Policy": f'"{NAME}";q={taken.rate.limit};w={taken.rate.seconds}',
        "RateLimit": f'"{NAME}";r={taken.remaining};t={ceil(taken.full_in)}',
    }
