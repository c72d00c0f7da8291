"""Access of monitoring, the "watchers", to /metrics, the details of /readyz and the API schema, without an account."""

from __future__ import annotations

import hmac
import ipaddress
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.http.request import split_domain_port
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission

_FORWARDED = ("X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Forwarded", "Via")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_watcher(request: HttpRequest) -> bool:
    """Whether the request comes from RONDO_WATCHERS or has RONDO_WATCHER_TOKEN. Does not use the database."""
    return _has_token(request) or _has_watcher_address(request)


def _has_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    expected = settings.RONDO_WATCHER_TOKEN
    same = hmac.compare_digest(token.strip().encode(), expected.encode())
    return bool(expected) and scheme.lower() == "bearer" and same


def _has_watcher_address(request: HttpRequest) -> bool:
    address = _client(request)
    return address is not None and any(address in network for network in settings.RONDO_WATCHERS)


def is_on_this_machine(request: HttpRequest) -> bool:
    """Whether the client is a program on this machine that asks for it by a loopback name, without a proxy."""
    address = _client(request)
    is_local = address is not None and address.is_loopback
    return is_local and split_domain_port(request.get_host())[0] in _LOOPBACK_NAMES


def _client(request: HttpRequest) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The client's address. None if it is unknown: without one, or behind a proxy on this machine."""
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR") or "")
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    is_forwarded = any(name.startswith("X-Forwarded-") or name in _FORWARDED for name in request.headers)
    # a local proxy that uvicorn does not trust: all its clients have this address
    return None if address.is_loopback and is_forwarded else address


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
