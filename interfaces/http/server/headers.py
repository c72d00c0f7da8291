"""Headers of every response: Content-Security-Policy; for the API also `Cache-Control` and what is left of the limit.

Each area has the strictest policy that it works with. The admin (Alpine) needs `eval` and inline styles, the pages of
the API docs need inline styles. Other pages have their scripts and styles in files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http.response import HttpResponseBase

from interfaces.doors import API, API_VERSION, FOR_PROGRAMS, VERSION_HEADER, is_for_programs

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


def add_headers(get_response: Any) -> Any:
    """Django middleware: adds the headers that the view did not set."""

    def answer(request: Any) -> HttpResponseBase:
        response: HttpResponseBase = get_response(request)
        response.headers.setdefault(POLICY, _policy(request))
        for name, value in getattr(request, "rate_limit_headers", {}).items():
            response.headers[name] = value
        if is_for_programs(request.path):
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    return answer


def _policy(request: Any) -> str:
    return next((policy for area, policy in AREAS.items() if request.path.startswith(area)), PAGES)


class AddHeaders:
    """ASGI middleware: adds the headers to responses that were made before Django's middleware, too."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Call the application and complete the headers of its response."""

        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = message | {"headers": _completed(scope, message.get("headers", ()))}
            await send(message)

        await self._app(scope, receive, send_with)


def _completed(scope: Any, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    headers = list(given)
    names = {name.lower() for name, _ in headers}
    least = {POLICY: DATA, "X-Content-Type-Options": "nosniff"}
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if is_for_programs(path):
        least["Cache-Control"] = "no-store"
    if path.startswith(API):
        least[VERSION_HEADER] = API_VERSION
    missing = {name: value for name, value in least.items() if name.lower().encode() not in names}
    return headers + [(name.encode(), value.encode()) for name, value in missing.items()]
