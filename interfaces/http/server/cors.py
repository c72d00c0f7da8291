"""CORS: lets the scripts of the sites in RONDO_CORS_ORIGINS use the API and the doors with a token.

Cookies are not accepted from there (no `Access-Control-Allow-Credentials`), so a page of another site never acts with a
browser's session. The pages for people have no CORS at all. It is ASGI middleware, since a script must be able to read
the responses of the limits before Django, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interfaces.doors import VERSION_HEADER, is_for_programs
from interfaces.http.server.request_id import HEADER as REQUEST_ID

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
EXPOSED_HEADERS = (
    *("ETag", "Location", "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy"),
    *("WWW-Authenticate", "Allow", "X-Should-Retry", REQUEST_ID, VERSION_HEADER),
)
MAX_AGE = 3600  # seconds that a browser keeps the answer to a preflight request


def allow_origins(app: Any, origins: Sequence[str]) -> Any:
    """The application with CORS for these origins; without any it stays as it is."""
    if not origins:
        return app
    from starlette.middleware.cors import CORSMiddleware  # late: most servers need none

    with_cors = CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=("*",),  # SDKs send many of their own; none gives a right without the token
        expose_headers=EXPOSED_HEADERS,
        max_age=MAX_AGE,
    )

    async def choose(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        await (with_cors if is_for_programs(path) else app)(scope, receive, send)

    return choose
