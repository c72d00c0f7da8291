"""An id for each request: in `X-Request-Id`, in its log lines, and in those of the turn that it queued."""

from __future__ import annotations

import re
import secrets
from typing import Any

import structlog

HEADER = "X-Request-Id"
KEY = "request"  # of log lines
LONGEST = 64  # characters
_NAME = HEADER.lower().encode()
_VALID = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST}}}".encode())  # nothing that could forge a log line


def new_id() -> str:
    """An id that no other request has."""
    return f"req_{secrets.token_hex(12)}"


def current_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get(KEY, ""))


class IdentifyRequests:
    """ASGI middleware, the outermost. A valid id of the client is used, so that both sides log the same one."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Bind the id to all log lines of the request, and send it with the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given(scope) or new_id()
        structlog.contextvars.bind_contextvars(**{KEY: request_id})

        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                others = (each for each in message.get("headers", ()) if each[0].lower() != _NAME)
                message = message | {"headers": [*others, (_NAME, request_id.encode())]}
            await send(message)

        await self._app(scope, receive, send_with)


def _given(scope: Any) -> str:
    """The client's id; empty if it is invalid, or if there are several."""
    values = [value for name, value in scope["headers"] if name.lower() == _NAME]
    return values[0].decode() if len(values) == 1 and _VALID.fullmatch(values[0]) else ""
