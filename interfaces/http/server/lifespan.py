"""The life of a server: what is done before its first request and after its last, and what a stop interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from interfaces.http.errors.problems import problem

STOPS = "The server is being stopped. What was sent may have been stored: ask again, with the same Idempotency-Key."
RETRY_AFTER = "5"  # seconds


class Lifespan:
    """Calls `begin` before the first request of a server and `end` after its last, each in a thread.

    A request whose response has not begun when the server stops is answered 503.
    """

    def __init__(self, app: Any, *, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._app, self._begin, self._end = app, begin, end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, or the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        message = await receive()
        while message["type"] == "lifespan.startup":
            await asyncio.to_thread(self._begin)
            await send({"type": "lifespan.startup.complete"})
            message = await receive()
        await asyncio.to_thread(self._end)
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        has_begun = False

        async def noted(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:  # uvicorn cancels what has not ended within its time
            if has_begun:
                raise
            await _refuse(send)


async def _refuse(send: Any) -> None:
    answer = problem(503, "unavailable", STOPS)
    answer["Retry-After"] = RETRY_AFTER
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})
