"""Takes out of a server's lists of tools what is malformed or too much, before the protocol's client reads them.

The client refuses a whole list for one malformed tool.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from agent_core.mcp.server import LeftOut

_KEPT: Final = (
    "name",
    "title",
    "description",
    "inputSchema",
    "annotations",
)  # of a tool; nothing else is used
_OF_OBJECTS: Final = {"properties", "required", "anyOf", "oneOf", "allOf", "$ref"}
_STRICTEST: Final = "2025-11-25"  # the revision with the narrowest form of a tool
_LONGEST_NAME: Final = 200


class Sieve:
    """Reads the lists of one session. At most `most` tools of all are kept; `count` counts all that came."""

    def __init__(self, *, most: int) -> None:
        self.count = 0
        self.left_out: list[LeftOut] = []
        self._most = most

    @asynccontextmanager
    async def over(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The transport, whose messages go through this sieve."""
        async with transport as (read, write):
            yield _Messages(read, self), write

    def message(self, message: Any) -> Any:
        """A message of the server."""
        reply = message.message if isinstance(message, SessionMessage) else None
        if isinstance(reply, types.JSONRPCResponse) and isinstance(listed := reply.result.get("tools"), list):
            room = max(0, self._most - self.count)
            self.count += len(listed)
            reply.result["tools"] = list(self._readable(listed[:room]))
        return message

    def _readable(self, listed: list[Any]) -> Iterator[dict[str, Any]]:
        """The well-formed tools, as far as they are used."""
        for given in listed:
            tool = (
                {key: given[key] for key in _KEPT if given.get(key) is not None}
                if isinstance(given, dict)
                else {}
            )
            schema = tool.get("inputSchema")
            if isinstance(schema, dict) and "type" not in schema and schema.keys() & _OF_OBJECTS:
                tool["inputSchema"] = {"type": "object", **schema}
            if reason := _reason(tool):
                name = tool.get("name")
                shown = name[:_LONGEST_NAME] if name and isinstance(name, str) else "(no name)"
                self.left_out.append(LeftOut(name=shown, reason=reason))
            else:
                yield tool


def _reason(tool: dict[str, Any]) -> str:
    """Why a tool cannot be read; empty if it can."""
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not name:
        return "it has no name"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its inputSchema is not a JSON schema of type object"
    try:
        validate_server_result("tools/list", _STRICTEST, {"tools": [tool]})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]["loc"]
        return f"its {next((each for each in wrong if each in tool), 'description')} cannot be read"
    return ""


class _Messages:
    """The stream of a transport's messages, each through the sieve."""

    def __init__(self, inner: Any, sieve: Sieve) -> None:
        self._inner = inner
        self._sieve = sieve

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self) -> Any:
        return self._sieve.message(await self._inner.receive())

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> Any:
        return self._sieve.message(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)
