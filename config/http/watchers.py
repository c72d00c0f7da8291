"""Access of monitoring (\"watchers\") to /metrics, the details of /readyz and the API schema, without an account."""

from __future__ import annotations

import hmac
import ipaddress
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission

_FORWARDED = ("X-Forwarded-For", "X-Real-Ip", "Forwarded", "Via")


def is_watcher(request: HttpRequest) -> bool:
    """Whether the request comes from RONDO_WATCHERS or has RONDO_WATCHER_TOKEN. Does not use the database."""
    return _has_token(request) or _has_watcher_address(request)


def _has_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    expected = settings.RONDO_WATCHER_TOKEN
    same = hmac.compare_digest(token.strip().encode(), expected.encode())
    return bool(expected) and scheme.lower() == "bearer" and same


def _has_watcher_address(request: HttpRequest) -> bool:
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR") or "")
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback and any(name in request.headers for name in _FORWARDED):
        return False  # a local proxy that uvicorn does not trust: all its clients have this address
    return any(address in network for network in settings.RONDO_WATCHERS)


class WatcherAuthentication(BaseAuthentication):
    """The watcher token belongs to no user: it authenticates as AnonymousUser."""

    def authenticate(self, request: Any) -> tuple[AnonymousUser, None] | None:
        """AnonymousUser with the token; else None, so that the next class is tried."""
        return (AnonymousUser(), None) if _has_token(request) else None

    def authenticate_header(self, request: Any) -> str:  # noqa: ARG002 - the signature is DRF's
        """The scheme in `WWW-Authenticate` of a 401."""
        return "Token"


class IsUserOrWatcher(BasePermission):
    """Signed-in users and watchers."""

    def has_permission(self, request: Any, view: Any) -> bool:  # noqa: ARG002 - the signature is DRF's
        """Whether the request may read the schema."""
        return bool(request.user and request.user.is_authenticated) or is_watcher(request)
