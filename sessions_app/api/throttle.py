"""The throttle of all views: DRF calls it before each view, and it counts in the database."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.throttling import BaseThrottle

from sessions_app.api.allowance import Rate, take_allowance
from sessions_app.api.client_address import site_of
from sessions_app.hooks.inbound import Caller


class Throttle(BaseThrottle):
    """Limits each user, each hook, and each address without a token, to RONDO_THROTTLE over all web processes."""

    _wait: float | None = None

    def allow_request(self, request: Any, view: Any) -> bool:  # noqa: ARG002 - the signature is DRF's
        """Count the request; whether it is allowed."""
        if settings.RONDO_THROTTLE is None:
            return True
        limit, seconds = settings.RONDO_THROTTLE
        self._wait = take_allowance(self._key(request), Rate(limit=limit, seconds=seconds))
        return not self._wait

    def wait(self) -> float | None:
        """Seconds for Retry-After."""
        return self._wait

    def _key(self, request: Any) -> str:
        if request.user.is_authenticated:
            return f"user:{request.user.pk}"
        if isinstance(request.auth, Caller):
            return f"hook:{request.auth.hook.pk}"
        return f"address:{site_of(self.get_ident(request) or '')}"
