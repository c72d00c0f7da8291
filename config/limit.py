"""The size limit of request bodies under /api/, in front of Django, which would spool any body to disk first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

API = "/api/"
LONGEST_BODY = 1024 * 1024  # bytes
DRAINED = 16 * LONGEST_BODY  # bytes read and dropped, so that a client that is still sending hears the answer
DRAIN_SECONDS = 2.0  # for a client that announced more than it sends
TOO_LARGE = f"A request body may have {LONGEST_BODY} bytes."

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

_PROBLEM = json.dumps(
    {
        "type": "about:blank",
        "title": "Request Entity Too Large",
        "status": 413,
        "code": "too_large",
        "detail": TOO_LARGE,
    }
).encode()


class _TooLarge(Exception):
    """More came than is taken, whatever Content-Length said."""


class LimitBody:
    """An ASGI application around another one. It counts what really comes, so chunked bodies are bounded too."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer 413 in the application's place, or let it answer."""
        if scope["type"] != "http" or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > LONGEST_BODY:
                with suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_SECONDS):
                        await _drain(message, receive, taken)
                raise _TooLarge
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLarge:
            await _refuse(send)


async def _drain(message: Message, receive: Receive, taken: int) -> None:
    while message.get("more_body") and taken <= DRAINED:
        message = await receive()
        taken += len(message.get("body", b""))


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(_PROBLEM))]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": _PROBLEM})
