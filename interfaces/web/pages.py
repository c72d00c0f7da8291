"""What all pages share: who may see them, their frame, and whether a fragment is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from interfaces.http.headers import is_fragment
from interfaces.web.conversations import conversations
from sessions_app.reads import selectors

View = Callable[..., HttpResponseBase]
PARTS = {
    "Appointments": "appointments"
}  # of the side of a conversation: pages that are loaded when they are opened
_PLACES = {"Agents": "agents", "Upcoming": "upcoming"}  # links below the list of conversations


def _shown_places(request: HttpRequest) -> list[dict[str, Any]]:
    found = {title: reverse(name) for title, name in _PLACES.items()}
    if person(request).is_staff:
        found["Admin"] = reverse("admin:index")
    return [{"title": title, "url": url, "is_here": request.path == url} for title, url in found.items()]


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
    """A whole page with the user's conversations beside it."""
    user = person(request)
    beside = {
        "listing": conversations(user),
        "agents": selectors.agents(user).order_by("name"),
        "places": _shown_places(request),
    }
    return render(request, f"web/{template}", beside | context, status=status)


def fragment(request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
    """A part of a page."""
    return render(request, f"web/{template}", context, status=status)


def done(request: HttpRequest, url: str, event: str = "refresh") -> HttpResponse:
    """The answer to a form: an event for the script that sent it, or a redirect for a browser without scripts."""
    if is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Trigger": event})
    return HttpResponseRedirect(url, status=303)


def leave_to(request: HttpRequest, url: str) -> HttpResponse:
    """Go to another page of this server, also from a fragment."""
    assert url_has_allowed_host_and_scheme(url, None)  # noqa: S101 - addresses are ours
    if is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return HttpResponseRedirect(url, status=303)
