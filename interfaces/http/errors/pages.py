"""Errors on the pages for people: a page, or one line of text for the script that asked for a part of a page."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import Any

import structlog
from django.core.exceptions import ValidationError
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string

from automations.schedules.slots import ScheduleError
from interfaces.http.errors.codes import status_of
from interfaces.http.headers import is_fragment
from interfaces.http.server.headers import current_id
from interfaces.http.throttle import count_page
from interfaces.protocols import is_for_programs
from sessions_app.exceptions import SessionsError

PROBES = {"/healthz", "/readyz", "/metrics"}  # asked by machines, and never limited
log = structlog.get_logger(__name__)

_BAD_VALUES = (ValidationError, ValueError, OverflowError, DataError)
PAGES = {  # the title and the text of each status; errors that have only a status show this text
    400: ("That did not work", "The browser sent something that the server does not understand."),
    403: (
        "You may not see this",
        "Reload the page you came from and try again. If that does not help, sign in again.",
    ),
    404: ("There is nothing here", "The page does not exist, or it is not yours."),
    405: ("This address is not a page", "It takes what a form sends. Go back to the page with the form."),
    409: ("Not possible right now", ""),
    413: ("That is too large", "The form has more text than the server takes."),
    429: ("Too many requests", ""),
    500: ("Something went wrong", "It was a mistake of the server, and it was logged. Try again."),
    503: ("The server is busy", "Try again in a few seconds."),
}


def error_page(request: HttpRequest, status: int, text: str = "") -> HttpResponse:
    """The error for a browser. It reads nothing from the database, which may be away."""
    title, usual = PAGES.get(status, PAGES[400])
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and (found := current_id()):
        text = f"{usual} If it happens again, tell the administrator this id: {found}"
    text = _sentence(text) or usual or PAGES[400][1]
    if is_fragment(request):
        return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
    shown = render_to_string("web/error.html", {"title": title, "text": text})
    return HttpResponse(shown, status=status, headers={"Cache-Control": "no-store"})


def _sentence(text: str) -> str:
    """The text with a full stop, unless it ends with a mark of its own."""
    return f"{text}." if text[-1:].isalnum() else text


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001 - Django's signature
    """The page for a form without a valid token, such as one that was opened before signing in."""
    return error_page(request, 403)


def wants_page(request: HttpRequest) -> bool:
    """Whether the client is a browser that asks for a page, or for a part of one."""
    return is_fragment(request) or "text/html" in request.headers.get("Accept", "")


def limit_pages(get_response: Any) -> Any:
    """Middleware: refuses pages beyond the rate limit, which they share with the API. Requests to the API are counted
    by DRF.
    """

    def answer(request: HttpRequest) -> Any:
        if is_for_programs(request.path) or request.path in PROBES or not (wait := count_page(request)):
            return get_response(request)
        refused = error_page(request, 429, f"Try again in {ceil(wait)} s")
        refused.headers["Retry-After"] = str(ceil(wait))
        return refused

    return answer


class PageErrors:
    """Middleware: turns a page's refusal into a page with its text."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        """Pass the request on."""
        response = self._get_response(request)
        if (
            response.status_code == HTTPStatus.METHOD_NOT_ALLOWED
            and not response.content
            and wants_page(request)
        ):
            page = error_page(request, response.status_code)
            page.headers["Allow"] = response.headers["Allow"]
            return page
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The page of a refusal; None for other errors, and for the API, whose errors DRF answers."""
        if is_for_programs(request.path):
            return None
        if isinstance(error, SessionsError | ScheduleError):
            text = str(error)
            return error_page(request, status_of(error.code), text[:1].upper() + text[1:])
        if isinstance(error, _BAD_VALUES) and _gave_values_to_admin(request):
            log.warning("admin_bad_value", path=request.path, error=str(error)[:200], exc_info=error)
            return error_page(request, 400, "One of the values in the address or the form is not valid.")
        return error_page(request, 404) if isinstance(error, Http404) else None


def _gave_values_to_admin(request: HttpRequest) -> bool:
    """Whether the request has values for a page of the admin. Django passes some of them on to queries unchecked."""
    match = request.resolver_match
    return match is not None and match.app_name == "admin" and bool(request.GET or request.POST)
