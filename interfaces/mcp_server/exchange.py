"""One HTTP exchange of the SDK, in memory: a request's bytes in, the bytes of its answer out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from interfaces.http.auth import TALK
from interfaces.mcp_server import elicitation
from interfaces.mcp_server.caller import Caller, NoThread
from interfaces.mcp_server.server import OUTAGES, mcp_server
from sessions_app.exceptions import NotFound, SessionsError

LONGEST = 1024 * 1024  # bytes of a message; interfaces.http.server.bodies has limited it already
Headers = Sequence[tuple[str, str]]
Send = Callable[[Any], Awaitable[None]]  # of ASGI
KEPT = ("content-type", "allow", "mcp-protocol-version")  # of the SDK's headers


@dataclass(kw_only=True)
class Answer:
    """What the SDK sent."""

    status_code: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def send(self, message: Any) -> None:
        """Take an ASGI message."""
        if message["type"] == "http.response.start":
            self.status_code = message["status"]
            for name, value in message["headers"]:
                if name.decode().lower() in KEPT:
                    self.headers[name.decode().title()] = value.decode()
        else:
            self.body += message.get("body", b"")


async def answer_message(caller: Caller, headers: Headers, body: bytes) -> Answer:
    """The SDK's answer. The protocol's revision decides how it reads the message."""
    answer = Answer()
    given = json.loads(body)
    if elicitation.is_reply(given):
        answer.status_code = await _status_of_reply(caller, given)
        return answer
    await _exchange(caller, headers, body, answer.send, {})
    session = elicitation.session_for(given)
    if session and answer.status_code == 200:
        answer.headers["Mcp-Session-Id"] = session
    return answer


async def stream_message(caller: Caller, headers: Headers, body: bytes, send: Send) -> None:
    """Send the SDK's answer as a stream, with progress and with questions to the person at the client."""

    async def elicit(event: bytes) -> None:
        await send({"type": "http.response.body", "body": event, "more_body": True})

    session = dict(headers).get("mcp-session-id", "")
    more = {"elicit": elicit if session.startswith(elicitation.SESSION) else None, "streams": True}
    await _exchange(caller, headers, body, send, more)


async def _status_of_reply(caller: Caller, given: Any) -> int:
    """Take a person's answer to a question."""
    if not caller.allows(TALK):
        return 403
    try:
        await elicitation.take_reply(caller, given)
    except (NoThread, *OUTAGES):
        return 503
    except SessionsError as error:
        return 404 if isinstance(error, NotFound) else 400
    return 202


async def _exchange(caller: Caller, headers: Headers, body: bytes, send: Send, more: dict[str, Any]) -> None:
    """One message through the SDK; `more` is what the handlers may use of a stream."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "headers": [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers],
        "caller": caller,
        **more,
    }
    whole = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not whole:
            await anyio.sleep_forever()  # a client that leaves cancels all of this
        return whole.pop()

    # stateless: nothing of a request is left in this process after it
    manager = StreamableHTTPSessionManager(
        mcp_server(), json_response="streams" not in more, stateless=True, max_request_body_size=LONGEST
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
