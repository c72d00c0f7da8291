"""Shared parts of all pages: who may see them, their frame, and fragments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from interfaces.http.headers import is_fragment
from interfaces.web.conversations import conversations
from sessions_app.reads import selectors

View = Callable[..., HttpResponseBase]
LARGEST_NUMBER = 2**31 - 1  # that a column of the database holds, such as a revision


@dataclass(frozen=True, kw_only=True)
class FormResult:
    """The result of a form that was not simply stored.

    `typed`: the form's fields as the person filled them in, if it was refused. `is_conflict`: somebody else changed the
    values meanwhile. `found`: the result of a test.
    """

    typed: Mapping[str, Any] | None = None
    problem: str = ""
    is_conflict: bool = False
    found: Mapping[str, Any] = field(default_factory=dict)

    def shown(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the form's fields: as they were typed, else as they are stored."""
        typed = self.typed
        return dict(stored) if typed is None else {name: typed.get(name, "") for name in stored}


def person_page(*methods: str) -> Callable[[View], View]:
    """Decorator: only for signed-in people and these methods; nothing of it is cached."""

    def decorate(view: View) -> View:
        return wraps(view)(require_http_methods([*methods])(never_cache(_signed_in(view))))

    return decorate


def _signed_in(view: View) -> View:
    asking = login_required(view)

    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if is_fragment(request) and not request.user.is_authenticated:
            return HttpResponse(status=401)  # the page reloads; a redirect would put the sign-in form into it
        return asking(request, *args, **kwargs)

    return answer


def person(request: HttpRequest) -> User:
    """The signed-in user."""
    return cast("User", request.user)


def page(request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
    """A whole page with the user's conversations beside it. Scripts are sent 200: they show no other answers."""
    user = person(request)
    beside = {
        "listing": conversations(user),
        "agents": selectors.agents(user).order_by("name"),
    }
    shown = 200 if is_fragment(request) else status
    return render(request, f"web/{template}", beside | context, status=shown)


def fragment(request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
    """A part of a page."""
    return render(request, f"web/{template}", context, status=status)


def leave_to(request: HttpRequest, url: str) -> HttpResponse:
    """Go to another page of this server, also from a fragment."""
    assert url_has_allowed_host_and_scheme(url, None)  # noqa: S101 - addresses are ours
    if is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return HttpResponseRedirect(url, status=303)


def whole_number(given: str, most: int = LARGEST_NUMBER) -> int | None:
    """The whole number in an address or a form; None if it is not from 0 to `most`."""
    is_number = given.isascii() and given.isdigit() and len(given) <= len(str(most)) and int(given) <= most
    return int(given) if is_number else None


def given_revision(request: HttpRequest) -> int:
    """The revision that the form was made with; one that never existed if the form has none."""
    number = whole_number(request.POST.get("revision", ""))
    return -1 if number is None else number
