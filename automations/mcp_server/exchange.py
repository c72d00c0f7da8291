"""One HTTP exchange of the SDK, in memory: a request's bytes in, the bytes of its answer out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from automations.mcp_server.caller import Caller
from automations.mcp_server.server import mcp_server

LONGEST = 1024 * 1024  # bytes of a message; config.http.body_limit has limited it already
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


async def answer_message(caller: Caller, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
    """The SDK's answer. The protocol's revision decides how it reads the message."""
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
    }
    whole = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not whole:
            await anyio.sleep_forever()  # a client that leaves cancels all of this
        return whole.pop()

    answer = Answer()
    # stateless, and with JSON for answers: nothing of a request is left in this process after it
    manager = StreamableHTTPSessionManager(
        mcp_server(), json_response=True, stateless=True, max_request_body_size=LONGEST
    )
    async with manager.run():
        await manager.handle_request(scope, receive, answer.send)
    return answer
