"""Turns errors into HTTP problems (application/problem+json, RFC 9457).

Under /api/ every error is a problem with a stable `code`, whether it comes from our code, DRF, Django or a limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from math import ceil
from typing import Any

import psycopg
import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from rest_framework import exceptions as drf

from agent_core.text.formats import status_phrase
from automations.exceptions import ScheduleError
from interfaces.http.errors.codes import BODY, CODES, FIELDS, PROBLEM, code_of, problem_body, status_of
from interfaces.http.errors.pages import error_page, wants_page
from interfaces.http.fields import MOST_ERRORS
from interfaces.http.server.bodies import longest_body, too_large
from interfaces.protocols import API, API_VERSION, VERSION_HEADER, is_for_programs
from sessions_app.exceptions import SessionsError

log = structlog.get_logger(__name__)

LONGEST_PATH = 200  # characters of a field's dotted path
LONGEST_VERSION = 20  # characters of an unknown version of the API in an error
LONGEST_TEXT = 300  # characters of an explanation, which may repeat a part of the input
RETRY_SECONDS = 5
OUTAGES = OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError
AWAY = "The database does not answer. Try again."
UNSURE = (
    "The database does not answer, so it is not known whether the request was carried out."
    " Repeat it with the same Idempotency-Key, or check first."
)


def problem(status: int, code: str, detail: str, **extras: Any) -> HttpResponse:
    """`{type, title, status, code, detail}` and `extras` such as `errors` by field."""
    body = problem_body(status, code, detail)
    response = JsonResponse(body | extras, status=status, content_type=PROBLEM)
    return response if status >= 500 else unlogged(response)


def unlogged(response: HttpResponse) -> HttpResponse:
    """Keep Django from logging this response: it would log a 4xx as a warning and a 503 as an error."""
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001 - Django's own mark
    return response


def problem_in(body: Mapping[str, Any], status: int, like: HttpResponse | None = None) -> HttpResponse:
    """An error in the form of a protocol. `like`: the API's own answer, whose headers are copied."""
    given = {} if like is None else like.headers
    headers = {name: given[name] for name in ("WWW-Authenticate", "Retry-After", "Allow") if name in given}
    return unlogged(JsonResponse(body, status=status, headers=headers))


def plain_problem(status: int) -> HttpResponse:
    """A problem that says what the first code of the status means."""
    code = code_of(status)
    return problem(status, code, CODES.get(status, {}).get(code, f"{status_phrase(status)}."))


def database_unavailable(request: HttpRequest, error: BaseException) -> HttpResponse:
    """503 for a database that does not answer, with a line in the log instead of a traceback."""
    first = (str(error).splitlines() or [""])[0]
    log.warning("database_unavailable", path=request.path, error=type(error).__name__, detail=first)
    if is_for_programs(request.path):
        detail = AWAY if request.method in {"GET", "HEAD"} else UNSURE
        response = problem(503, "unavailable", detail)
    else:
        response = _plain(request, 503)
    response["Retry-After"] = str(RETRY_SECONDS)
    return unlogged(response)


def problem_of(error: Exception, context: Any = None) -> HttpResponse | None:
    """DRF's exception handler. None for a bug, which becomes a 500 that does not show its text."""
    if isinstance(error, OUTAGES) and context:
        return database_unavailable(context["request"], error)
    if isinstance(error, SessionsError):
        return _of_ours(error, context)
    if isinstance(error, ScheduleError):
        return _bad_field(error.code, error.message, context)
    if isinstance(error, drf.APIException):
        return _of_drf(error)
    if isinstance(error, DataError):  # a value that passed our checks, but that the column does not accept
        log.warning("data_error", error=str(error))
        return problem(400, "bad_input", "The database cannot store one of the values.")
    if isinstance(error, IntegrityError):  # for example, a row that this one refers to was just deleted
        log.warning("integrity_error", error=str(error))
        return problem(409, "conflict", "Another request changed this at the same time; try again.")
    if isinstance(error, Http404 | PermissionDenied):
        return plain_problem(404 if isinstance(error, Http404) else 403)
    return None


def _bad_field(code: str, text: str, context: Any, **details: Any) -> HttpResponse:
    """400 with `errors`, as far as it concerns a field."""
    if "errors" not in details and (field := _field_of(code, context)):
        details["errors"] = {field: [text[:LONGEST_TEXT]]}
    return problem(400, code, text, **details)


def _field_of(code: str, context: Any) -> str:
    """The field of the request's body, or the header, that the error concerns; empty for none."""
    kind, _, name = code.partition("_")
    fields = FIELDS.get(code, (name,) if kind in {"bad", "empty"} else ())
    body: Any = {}
    if fields and context:
        with suppress(drf.APIException, OSError):  # the body cannot be read
            body = context["request"].data
    # a session is named in the body, or in the address
    otherwise = "" if code == "internal_session" else next(iter(fields), "")
    return next((field for field in fields if _has(body, field)), otherwise)


def _has(body: Any, field: str) -> bool:
    for name in field.split("."):
        if not (isinstance(body, Mapping) and name in body):
            return False
        body = body[name]
    return True


def _of_ours(error: SessionsError, context: Any) -> HttpResponse:
    status = status_of(error.code)
    if status == 400:
        return _bad_field(error.code, str(error), context, **error.details)
    response = problem(status, error.code, str(error), **error.details)
    if response.status_code == 401:
        response["WWW-Authenticate"] = "Bearer"  # for hooks; DRF has rejected other unknown clients before
    if seconds := getattr(error, "retry_after", None):
        response["Retry-After"] = str(seconds)
    return response


def _of_drf(error: drf.APIException) -> HttpResponse:
    if isinstance(error, drf.ValidationError):
        every = _field_errors(error.detail, "")
        found = dict(islice(every, MOST_ERRORS))
        first, texts = next(iter(found.items()), (BODY, ["The input is not valid."]))
        rest = sum(1 for _ in every)
        detail = f"{first}: {texts[0]}" + (f" ({rest:,} more fields are not shown.)" if rest else "")
        return problem(400, "bad_input", detail, errors=found)
    if isinstance(error, drf.ParseError):
        return _bad_field("malformed_body", str(error.detail), None)
    response = problem(error.status_code, code_of(error.status_code), str(error.detail))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if (wait := getattr(error, "wait", None)) is not None:
        response["Retry-After"] = str(ceil(wait))
    return response


def _field_errors(detail: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """Pairs of a field's dotted path (`body` for the whole input) and its errors, each of bounded length."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            yield from _field_errors(inner, f"{path}.{name}".strip("."))
    elif isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        for number, inner in enumerate(detail):
            yield from _field_errors(inner, f"{path}.{number}".strip("."))
    else:
        texts = detail[:MOST_ERRORS] if isinstance(detail, list) else [detail]
        yield path[:LONGEST_PATH] or BODY, [str(text)[:LONGEST_TEXT] for text in texts]


def api_problems(get_response: Any) -> Any:
    """Django middleware: under /api/ and the protocols' addresses, errors outside of views are problems, too."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        if not is_for_programs(request.path):
            response: HttpResponseBase = get_response(request)
            return response
        return (
            _check_version(request) or _check_length(request) or _as_problem(request, get_response(request))
        )

    return answer


def _check_version(request: HttpRequest) -> HttpResponse | None:
    asked = request.headers.get(VERSION_HEADER, API_VERSION)
    if asked == API_VERSION or not request.path.startswith(API):
        return None
    text = f"unknown version {asked[:LONGEST_VERSION]!r} of the API; this server has {API_VERSION}"
    return problem(400, "unknown_version", text, errors={VERSION_HEADER: [text]})


def _check_length(request: HttpRequest) -> HttpResponse | None:
    if request.method in {"GET", "HEAD"}:
        return None
    length = request.META.get("CONTENT_LENGTH") or ""
    if not length.isdigit():
        # sent in chunks: DRF would treat it as empty; interfaces.http.server.bodies has limited its size
        request.META["CONTENT_LENGTH"] = length = str(len(request.body))
    longest = longest_body(request.path)
    return problem(413, "too_large", too_large(longest)) if int(length[:12]) > longest else None


def _as_problem(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code == 301 and request.method not in {"GET", "HEAD"}:
        # CommonMiddleware redirects to the address with a slash; clients would follow with GET and without the body
        return problem(404, "not_found", f"The address must end with a slash: {request.path}/")
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
    """Django's handler500, for exceptions outside of DRF. It does not show their text.

    Django logs the exception, except when the database does not answer.
    """
    error = sys.exc_info()[1]
    return database_unavailable(request, error) if isinstance(error, OUTAGES) else _plain(request, 500)


def server_busy(request: HttpRequest, seconds: int) -> HttpResponse:
    """503 with `Retry-After`."""
    response = unlogged(_plain(request, 503))
    response["Retry-After"] = str(seconds)
    return response


def _plain(request: HttpRequest, status: int) -> HttpResponse:
    if is_for_programs(request.path):
        return plain_problem(status)
    if wants_page(request):
        return error_page(request, status)
    return plain_text(status)


def plain_text(status: int, text: str = "") -> HttpResponse:
    """An error for a client that is no program of the API and no browser."""
    lines = (f"{status} {status_phrase(status)}", *([text] if text else ()), "")
    return HttpResponse("\n".join(lines), status=status, content_type="text/plain; charset=utf-8")
