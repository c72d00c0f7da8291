"""Limits on signing in with a password. django-axes counts failures in the database.

Hashing a password takes a third of a second of processor time on purpose. So these are refused before: an account with
too many failures from one address (AXES_… in the settings), an address with too many attempts on any account, and
attempts beyond the number that may be hashed at a time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import wraps
from math import ceil
from threading import BoundedSemaphore
from typing import Any

from axes.backends import AxesStandaloneBackend
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpRequest, HttpResponse

from interfaces.http.client_address import network_of
from interfaces.http.errors.pages import error_page, wants_page
from sessions_app.limits.request_rate import Rate, take_allowance

BY_ADDRESS = Rate(limit=20, seconds=60)
AT_ONCE = 1  # passwords that a process hashes at a time
MOST_WAITING = 3  # further attempts that may wait, each in a thread that other requests need
WAIT_SECONDS = 2.0
LONGEST_NAME = 150  # characters, as in Django's user model

_hashing = BoundedSemaphore(AT_ONCE)
_waiting = BoundedSemaphore(MOST_WAITING)


class Backend(AxesStandaloneBackend, ModelBackend):  # type: ignore[misc]  # comes without types
    """Django's accounts with these limits. Without a request (from a program) there are no limits."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """The user, or None. Raises PermissionDenied if a limit was reached and the password was not checked."""
        if request is None:
            return ModelBackend.authenticate(self, request, username, password, **kwargs)
        if wait := take_allowance(f"sign-in:{_network(request)}", BY_ADDRESS):
            _deny(request, wait)
        AxesStandaloneBackend.authenticate(self, request, username, password, **kwargs)
        if not _acquire_hashing():
            _deny(request, WAIT_SECONDS)
        try:
            return ModelBackend.authenticate(self, request, username, password, **kwargs)
        finally:
            _hashing.release()


def limit_password_changes(view: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Decorator: a page to change one's password checks the old one, so it has the same limits as signing in."""

    def limited(request: HttpRequest) -> Any:
        if request.method != "POST":
            return view(request)
        if wait := take_allowance(f"password:{request.user.pk}", BY_ADDRESS):
            return _too_many_attempts(request, wait)
        if not _acquire_hashing():
            return _too_many_attempts(request, WAIT_SECONDS)
        try:
            return view(request)
        finally:
            _hashing.release()

    return wraps(view)(limited)


@limit_password_changes
def change_password(request: HttpRequest) -> Any:
    """The admin's page to change one's password."""
    return admin.site.password_change(request)


def _acquire_hashing() -> bool:
    """Wait for permission to hash a password; False if there are too many. Release `_hashing` afterwards.

    A waiting request holds no database connection.
    """
    if _hashing.acquire(blocking=False):
        return True
    if not _waiting.acquire(blocking=False):
        return False
    try:
        if not connection.in_atomic_block:
            connection.close()
        return _hashing.acquire(timeout=WAIT_SECONDS)
    finally:
        _waiting.release()


def _deny(request: Any, wait: float) -> None:
    request.sign_in_after = wait
    request.axes_locked_out = True  # its middleware answers with `sign_in_refusal`, and it counts no failure
    raise PermissionDenied


def sign_in_refusal(request: Any, *_: Any) -> HttpResponse:
    """The response to a sign-in that `Backend` or django-axes denied."""
    wait = getattr(request, "sign_in_after", settings.AXES_COOLOFF_TIME.total_seconds())
    return _too_many_attempts(request, wait)


def _too_many_attempts(request: HttpRequest, wait: float) -> HttpResponse:
    seconds = ceil(wait)
    text = f"Too many attempts with a password. Try again in {seconds} seconds."
    if wants_page(request):
        response = error_page(request, 429, text)
    else:
        response = HttpResponse(f"{text}\n", status=429, content_type="text/plain; charset=utf-8")
    response["Retry-After"] = str(seconds)
    response["Cache-Control"] = "no-store"
    return response


def account_of(request: HttpRequest, credentials: Any = None) -> str:
    """The user name for django-axes, cut to the length of its column: a form may contain names of any length."""
    given = request.POST if credentials is None else credentials
    return str(given.get("username") or "")[:LONGEST_NAME]


def address_of(request: HttpRequest) -> str | None:
    """The client's address for django-axes: the first address of its network. None without a valid address."""
    try:
        return str(ipaddress.ip_network(_network(request)).network_address)
    except ValueError:
        return None


def _network(request: HttpRequest) -> str:
    return network_of(request.META.get("REMOTE_ADDR") or "")
