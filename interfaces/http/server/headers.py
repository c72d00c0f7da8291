"""Headers of responses: an id, a Content-Security-Policy; for the API a version, rate limits and CORS.

Each area has the strictest policy that it works with. The admin (Alpine) needs `eval` and inline styles, the pages of
the API docs need inline styles. Other pages have their scripts and styles in files.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

import structlog
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

from interfaces.protocols import API, API_VERSION, FOR_PROGRAMS, VERSION_HEADER, is_for_programs

POLICY = "Content-Security-Policy"
_SHARED = "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_OF_SITE = (
    "default-src 'none'; connect-src 'self'; font-src 'self'; img-src 'self' data:; manifest-src 'self'"
)
ADMIN = f"{_OF_SITE}; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; {_SHARED}"
DOCS = f"{_OF_SITE}; script-src 'self'; style-src 'self' 'unsafe-inline'; {_SHARED}"
PAGES = f"{_OF_SITE}; script-src 'self'; style-src 'self'; {_SHARED}"
DATA = f"default-src 'none'; {_SHARED}"
AREAS = {"/admin/": ADMIN, "/api/docs/": DOCS} | dict.fromkeys(FOR_PROGRAMS, DATA)

REQUEST_ID = "X-Request-Id"
LOG_KEY = "request"
LONGEST_ID = 64  # characters
_NAME = REQUEST_ID.lower().encode()
_VALID = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_ID}}}".encode())  # nothing that could forge a log line

CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
EXPOSED_HEADERS = (
    *("ETag", "Location", "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy"),
    *("WWW-Authenticate", "Allow", "X-Should-Retry", REQUEST_ID, VERSION_HEADER),
)
CORS_SECONDS = 3600  # that a browser keeps the answer to a CORS preflight request

COMPRESSED = ("text/html", "text/css", "text/javascript", "image/svg+xml")


def new_id() -> str:
    """An id that no other request has."""
    return f"req_{secrets.token_hex(12)}"


def current_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get(LOG_KEY, ""))


def path_in(scope: Any) -> str:
    """The path of an ASGI request, without the prefix of the application."""
    return str(scope["path"].removeprefix(scope.get("root_path", "")))


class CompleteHeaders:
    """ASGI middleware, the outermost: adds headers to responses that Django's middleware does not see, too.

    A valid request id of the client is used, so that both sides log the same one, also in the turn that it queues.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Bind the id to all log lines of the request, and complete the headers of its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or new_id()
        structlog.contextvars.bind_contextvars(**{LOG_KEY: request_id})
        least = _least_headers(path_in(scope)) | {REQUEST_ID: request_id}

        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                missing = ((name.lower().encode(), value.encode()) for name, value in least.items())
                message = message | {"headers": given + [each for each in missing if each[0] not in names]}
            await send(message)

        await self._app(scope, receive, send_with)


def _given_id(scope: Any) -> str:
    """The client's id; empty if it is invalid, or if there are several."""
    values = [value for name, value in scope["headers"] if name.lower() == _NAME]
    return values[0].decode() if len(values) == 1 and _VALID.fullmatch(values[0]) else ""


def add_headers(get_response: Any) -> Any:
    """Django middleware: adds the headers that the view did not set."""

    def answer(request: Any) -> HttpResponseBase:
        response: HttpResponseBase = get_response(request)
        for name, value in _least_headers(request.path).items():
            response.headers.setdefault(name, value)
        for name, value in getattr(request, "rate_limit_headers", {}).items():
            response.headers[name] = value
        return response

    return answer


def _least_headers(path: str) -> dict[str, str]:
    policy = next((policy for area, policy in AREAS.items() if path.startswith(area)), PAGES)
    least = {POLICY: policy, "X-Content-Type-Options": "nosniff"}
    if is_for_programs(path):
        least["Cache-Control"] = "no-store"
    if path.startswith(API):
        least[VERSION_HEADER] = API_VERSION
    return least


class CompressPages(GZipMiddleware):
    """Django's middleware for pages and static files only: it would hold back the events of a stream.

    It pads its output by a random length against attacks that measure it (BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The compressed response, if the client takes it."""
        is_ours = response.headers.get("Content-Type", "").startswith(COMPRESSED)
        return super().process_response(request, response) if is_ours else response


def allow_origins(app: Any, origins: Sequence[str]) -> Any:
    """The application with CORS: scripts of these sites may use the API and the protocols with a token.

    Cookies are not accepted from there (no `Access-Control-Allow-Credentials`), so a page of another site never acts
    with a browser's session. Pages have no CORS. It is ASGI middleware, since a script must be able to read refusals
    before Django, too.
    """
    if not origins:
        return app
    from starlette.middleware.cors import CORSMiddleware  # late: most servers need none

    with_cors = CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=CORS_METHODS,
        allow_headers=("*",),  # SDKs send many of their own; none gives a right without the token
        expose_headers=EXPOSED_HEADERS,
        max_age=CORS_SECONDS,
    )

    async def choose(scope: Any, receive: Any, send: Any) -> None:
        has_cors = scope["type"] == "http" and is_for_programs(path_in(scope))
        await (with_cors if has_cors else app)(scope, receive, send)

    return choose
