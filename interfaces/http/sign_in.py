"""Limits on signing in with a password, and links that sign a user in once. django-axes counts failures.

Hashing a password takes a third of a second of processor time on purpose. So these are refused before: an account with
too many failures from one address (AXES_… in the settings), an address with too many attempts on any account, and
attempts beyond the number that may be hashed at a time.

`manage.py up` and `sign_in_link` print a link. Its token has 256 random bits. The database has only its hash, so
somebody who reads the database has no link. The button of its page uses the link up: previews only read the page.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from math import ceil
from threading import BoundedSemaphore
from typing import Any

from axes.backends import AxesStandaloneBackend
from django.conf import settings
from django.contrib import admin
from django.contrib.auth import login
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from interfaces.http.client_address import network_of
from interfaces.http.errors.pages import error_page, wants_page
from interfaces.http.watchers import is_on_this_machine
from sessions_app.agents.edit import take_zone
from sessions_app.exceptions import BadInput
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import SignInLink
from sessions_app.tokens.issue import hashed, new_secret

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


def limit_password_forms(view: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a form that hashes a password, to check or to set it, has the same limits as signing in."""

    def limited(request: HttpRequest, *args: Any, **named: Any) -> Any:
        if request.method != "POST":
            return view(request, *args, **named)
        user = request.user
        who = f"password:{user.pk}" if user.is_authenticated else f"sign-in:{_network(request)}"
        if wait := take_allowance(who, BY_ADDRESS):
            return _too_many_attempts(request, wait)
        if not _acquire_hashing():
            return _too_many_attempts(request, WAIT_SECONDS)
        try:
            return view(request, *args, **named)
        finally:
            _hashing.release()

    return wraps(view)(limited)


@limit_password_forms
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


VALID = timedelta(minutes=10)
# The address holds the token: no request that the page makes may name it. With `no-referrer` a browser would also hide
# the origin of the form, and Django's protection against forged requests would refuse it.
REFERRER_POLICY = "strict-origin"


def issue(user: User) -> str:
    """Create a link. Returns its path, `/enter/<token>/`, which is not stored."""
    token = new_secret()
    SignInLink.objects.create(user=user, token_sha256=hashed(token), expires_at=Now() + VALID)
    return f"/enter/{token}/"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def enter_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """The page with the button, or the sign-in that the button asks for. 403 from elsewhere; 410 for a dead link."""
    if not is_on_this_machine(request):
        response = render(request, "web/enter.html", {"state": "elsewhere"}, status=403)
    elif request.method == "POST":
        response = _sign_in(request, token)
    else:
        response = _page(request, is_valid=_valid_links(token).exists())
    response["Referrer-Policy"] = REFERRER_POLICY
    return response


def _sign_in(request: HttpRequest, token: str) -> HttpResponse:
    with transaction.atomic():  # a link whose session cannot be stored stays valid
        # of two requests at once the second waits for the first, then finds the link used
        link = _valid_links(token).select_for_update(of=("self",)).select_related("user").first()
        if link is None:
            return _page(request, is_valid=False)
        link.used_at = Now()
        link.save(update_fields=["used_at"])
        login(request, link.user, backend=settings.AUTHENTICATION_BACKENDS[0])
    take_browser_zone(request, link.user.pk)
    return HttpResponseRedirect("/", status=303)


def take_browser_zone(request: HttpRequest, user_id: int) -> None:
    """Keep the time zone that the browser has sent, unless one is kept. One that is not known is left out."""
    with suppress(BadInput):
        take_zone(user_id, request.POST.get("timezone", ""))


def _valid_links(token: str) -> QuerySet[SignInLink]:
    found = SignInLink.objects.filter(token_sha256=hashed(token), used_at=None, expires_at__gt=Now())
    return found.filter(user__is_active=True)


def _page(request: HttpRequest, *, is_valid: bool) -> HttpResponse:
    context = {"state": "valid" if is_valid else "dead", "command": settings.RONDO_COMMAND}
    return render(request, "web/enter.html", context, status=200 if is_valid else 410)
