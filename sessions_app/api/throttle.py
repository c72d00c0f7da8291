"""How much one may ask for: DRF asks a throttle before each view, this one asks the database."""

from __future__ import annotations

import ipaddress
from typing import Any

from django.conf import settings
from rest_framework.throttling import BaseThrottle

from sessions_app.allowance import Rate, take
from sessions_app.inbound import Caller

_IPV6_SITE = 64  # leading bits of an address that one customer has for himself


class Throttle(BaseThrottle):
    """RONDO_THROTTLE for each user, hook, and address that shows no token; counted over all web processes."""

    _wait: float | None = None

    def allow_request(self, request: Any, view: Any) -> bool:  # noqa: ARG002 - the signature is DRF's
        """Count the request, and say whether it may go on."""
        if settings.RONDO_THROTTLE is None:
            return True
        limit, seconds = settings.RONDO_THROTTLE
        self._wait = take(self._key(request), Rate(limit=limit, seconds=seconds))
        return not self._wait

    def wait(self) -> float | None:
        """Seconds for Retry-After."""
        return self._wait

    def _key(self, request: Any) -> str:
        if request.user.is_authenticated:
            return f"user:{request.user.pk}"
        if isinstance(request.auth, Caller):
            return f"hook:{request.auth.hook.pk}"
        return f"address:{_network(self.get_ident(request) or '')}"


def _network(address: str) -> str:
    try:
        if (found := ipaddress.ip_address(address)).version == 4:
            return str(found)
        return str(ipaddress.ip_network((address, _IPV6_SITE), strict=False))
    except ValueError:
        return address[:64]  # no network address: a socket's, or none at all
