"""Domain error → HTTP problem (application/problem+json, RFC 9457). The one place that knows both.

Under /api/ every refusal is a problem with a stable `code`, whoever refused: a verb, DRF, Django or the size limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from math import ceil
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import DatabaseError, DataError, IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.decorators import sync_and_async_middleware
from rest_framework import exceptions as drf

from automations.schedule_errors import ScheduleError
from config.codes import code_of, status_of
from config.limit import API, LONGEST_BODY, TOO_LARGE
from sessions_app.exceptions import SessionsError

log = structlog.get_logger(__name__)

PROBLEM = "application/problem+json"
TEXTS = {
    400: "The request cannot be read.",
    404: "There is nothing at this address.",
    500: "Something went wrong on our side. It was logged.",
}


def problem(status: int, code: str, detail: str, **extras: Any) -> HttpResponse:
    """`{type, title, status, code, detail}` and what else helps, such as `errors` by field."""
    phrase = HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": phrase, "status": status, "code": code, "detail": detail}
    response = JsonResponse(body | extras, status=status, content_type=PROBLEM)
    return response if status >= 500 else unlogged(response)


def unlogged(response: HttpResponse) -> HttpResponse:
    """An answer that is no news for operators: Django would log every refusal as a warning, 503 as an error."""
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - Django's own mark
    return response


def plain_problem(status: int) -> HttpResponse:
    """The problem of a bare status."""
    phrase = HTTPStatus(status).phrase
    return problem(status, code_of(status), TEXTS.get(status, f"{phrase}."))


def problem_of(error: Exception, _context: Any = None) -> HttpResponse | None:
    """DRF's exception handler; None for a bug, which then becomes a 500 without its text."""
    if isinstance(error, SessionsError):
        return _of_ours(error)
    if isinstance(error, ScheduleError):
        return problem(400, error.code, error.message)
    if isinstance(error, drf.APIException):
        return _of_drf(error)
    if isinstance(error, DatabaseError):
        return _of_database(error)
    return _of_django(error)


def _of_ours(error: SessionsError) -> HttpResponse:
    response = problem(status_of(error.code), error.code, str(error), **error.details)
    if response.status_code == 401:
        response["WWW-Authenticate"] = "Bearer"  # of a hook: nobody else gets this far without being known
    return response


def _of_database(error: DatabaseError) -> HttpResponse | None:
    if isinstance(error, DataError):  # a value that no check refused and no column takes
        log.warning("data_error", error=str(error))
        return problem(400, "bad_input", "A value cannot be stored.")
    if isinstance(error, IntegrityError):  # what it rests on was deleted under us
        log.warning("integrity_error", error=str(error))
        return problem(409, "conflict", "Somebody else changed this at the same time; try again.")
    return None


def _of_django(error: Exception) -> HttpResponse | None:
    if isinstance(error, Http404):
        return problem(404, "not_found", "There is no such thing.")
    if isinstance(error, PermissionDenied):
        return plain_problem(403)
    if isinstance(error, RequestDataTooBig):
        return problem(413, "too_large", TOO_LARGE)
    return None


def _of_drf(error: drf.APIException) -> HttpResponse:
    if isinstance(error, drf.ValidationError):
        found = dict(_field_errors(error.detail, ""))
        first, texts = next(iter(found.items()), ("body", ["The input is not valid."]))
        detail = f"{first}: {texts[0]}"
        return problem(400, "bad_input", detail, errors=found)
    code = "malformed_body" if isinstance(error, drf.ParseError) else code_of(error.status_code)
    response = problem(error.status_code, code, str(error.detail))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if (wait := getattr(error, "wait", None)) is not None:
        response["Retry-After"] = str(ceil(wait))
    return response


def _field_errors(detail: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """Pairs of a field's dotted path (`body` for the whole input) and its sentences."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            yield from _field_errors(inner, f"{path}.{name}".strip("."))
    elif isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        for number, inner in enumerate(detail):
            yield from _field_errors(inner, f"{path}.{number}".strip("."))
    else:
        yield path or "body", [str(text) for text in (detail if isinstance(detail, list) else [detail])]


@sync_and_async_middleware
def api_problems(get_response: Any) -> Any:
    """The outermost middleware: what went wrong outside of a view under /api/ is a problem, too."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return _before(request) or _as_problem(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        return _before(request) or _as_problem(request, get_response(request))

    return answer


def _before(request: HttpRequest) -> HttpResponse | None:
    if not request.path.startswith(API) or request.method in {"GET", "HEAD"}:
        return None
    length = request.META.get("CONTENT_LENGTH") or ""
    if not length.isdigit():
        # sent in chunks: DRF would take it for empty; config.limit has seen to its size
        request.META["CONTENT_LENGTH"] = length = str(len(request.body))
    return problem(413, "too_large", TOO_LARGE) if int(length[:12]) > LONGEST_BODY else None


def _as_problem(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if not request.path.startswith(API):
        return response
    if response.status_code == 301 and request.method not in {"GET", "HEAD"}:
        # CommonMiddleware adds the slash; a client that followed would come back with GET and without a body
        return problem(404, "not_found", f"Addresses end with a slash: {request.path}/")
    kind = response.headers.get("Content-Type", "")
    if response.status_code < 400 or kind.startswith((PROBLEM, "application/json")):
        return response
    return plain_problem(response.status_code)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django names it
    """Django's handler404."""
    return _plain(request, 404)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400."""
    return _plain(request, 413 if isinstance(exception, RequestDataTooBig) else 400)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django names it
    """Django's handler403."""
    return _plain(request, 403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500; the exception was logged by Django, its text stays here."""
    return _plain(request, 500)


def _plain(request: HttpRequest, status: int) -> HttpResponse:
    if request.path.startswith(API):
        return plain_problem(status)
    text = f"{status} {HTTPStatus(status).phrase}\n"
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
