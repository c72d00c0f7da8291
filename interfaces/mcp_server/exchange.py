"""The SDK's answer to one message, in this process: it reads the request's bytes and sends its own as an ASGI app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import structlog
from django.http import StreamingHttpResponse
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from rest_framework.request import Request

from interfaces.http.auth import TALK, right_of
from interfaces.http.errors.problems import OUTAGES
from interfaces.mcp_server import asking
from interfaces.mcp_server.server import mcp_server
from interfaces.mcp_server.tools import Caller
from sessions_app.exceptions import NotFound, NoThreadFree, SessionsError
from sessions_app.streams.reader import Run

log = structlog.get_logger(__name__)

LONGEST = 1024 * 1024  # bytes of a message; interfaces.http.server.bodies has limited it already
KEPT = ("content-type", "allow", "mcp-protocol-version")  # of the SDK's headers
SESSION_ID = "Mcp-Session-Id"


class SdkResponse(StreamingHttpResponse):
    """The answer, made on the event loop, where it may wait without holding a thread.

    `given` is the message. `streams`: the answer is a stream, with progress and questions to the person at the client.
    When the client leaves, the request ends, and the turn goes on.
    """

    def __init__(self, request: Request, given: Any, *, streams: bool) -> None:
        super().__init__(self._pieces(), content_type="text/event-stream")  # so that it is not compressed
        self._request, self._body, self._given, self._streams = request, request.body, given, streams
        self._right = right_of(request)
        self._messages: asyncio.Queue[Any] = asyncio.Queue(1)
        self._task: asyncio.Task[None] | None = None

    async def later(self, run: Run) -> None:
        """Let the SDK begin its answer. A person's reply to a question is stored without it."""
        auth: Any = self._request.auth
        user = cast("Any", self._request.user)
        caller = Caller(user=user, allows=auth.allows, right=self._right, run=run)
        self["Cache-Control"], self["X-Accel-Buffering"] = "no-store", "no"
        if asking.is_reply(self._given):
            self.status_code = await _status_of_reply(caller, self._given)
            self["Content-Type"] = "application/json"
            self._messages.put_nowait(None)
            return
        self._task = asyncio.create_task(self._run(caller))
        begin = await self._messages.get() or {"status": 500, "headers": ()}
        self.status_code = begin["status"]
        for name, value in begin["headers"]:
            if name.decode().lower() in KEPT:
                self[name.decode().title()] = value.decode()
        session = asking.session_for(self._given)
        if session and self.status_code == 200:
            self[SESSION_ID] = session

    def close(self) -> None:
        """End the request. A second call is harmless."""
        super().close()
        if self._task is not None:
            self._task.cancel()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            yield message.get("body", b"")

    async def _run(self, caller: Caller) -> None:
        try:
            await self._exchange(caller)
        except Exception:
            log.exception("mcp_exchange_failed")
        await self._messages.put(None)

    async def _exchange(self, caller: Caller) -> None:
        """Pass the message through the SDK. The protocol's revision decides how it is read."""
        headers = self._request.headers
        shows_questions = headers.get(SESSION_ID, "").startswith(asking.SESSION)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
                for name, value in headers.items()
            ],
            "caller": caller,
            "streams": self._streams,
            "elicit": self._elicit if self._streams and shows_questions else None,
        }
        whole = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive() -> Any:
            if not whole:
                await anyio.sleep_forever()  # a client that leaves cancels all of this
            return whole.pop()

        # stateless: nothing of a request is left in this process after it
        manager = StreamableHTTPSessionManager(
            mcp_server(), json_response=not self._streams, stateless=True, max_request_body_size=LONGEST
        )
        async with manager.run():
            await manager.handle_request(scope, receive, self._messages.put)

    async def _elicit(self, event: bytes) -> None:
        await self._messages.put({"type": "http.response.body", "body": event, "more_body": True})


async def _status_of_reply(caller: Caller, given: Any) -> int:
    """Take a person's answer to a question."""
    if not caller.allows(TALK):
        return 403
    try:
        await asking.take_reply(caller, given)
    except (NoThreadFree, *OUTAGES):
        return 503
    except SessionsError as error:
        return 404 if isinstance(error, NotFound) else 400
    return 202
