"""Sends requests to an MCP server with the official client, over HTTP.

Only this module imports that client, which takes a second and 30 MB: a process imports it with its first server.
Each listing and each call uses a session of its own, so no connection stays open between them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import httpx2
import mcp_types as types
from mcp.client import Client, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agent_core.addresses import Reach
from agent_core.exceptions import ServerFailed
from agent_core.guarded_transport import Bound, GuardedTransport
from agent_core.mcp.server import LeftOut, Listing, McpServer

# of a tool; nothing else is used
_KEPT: Final = ("name", "title", "description", "inputSchema", "annotations")
_OF_OBJECTS: Final = {"properties", "required", "anyOf", "oneOf", "allOf", "$ref"}
_STRICTEST: Final = "2025-11-25"  # the revision with the narrowest form of a tool
_LONGEST_NAME: Final = 200


class Sieve:
    """Removes malformed tools from the lists that an MCP server sends; the client would refuse the whole list.

    Of all lists together at most MOST_LISTED tools are kept. `count`: how many tools the server has sent, removed
    ones included.
    """

    def __init__(self) -> None:
        self.count = 0
        self.left_out: list[LeftOut] = []

    @asynccontextmanager
    async def over(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The transport, whose messages go through this sieve."""
        async with transport as (read, write):
            yield _Messages(read, self), write

    def message(self, message: Any) -> Any:
        """Return a message of the server without malformed tools."""
        reply = message.message if isinstance(message, SessionMessage) else None
        if isinstance(reply, types.JSONRPCResponse) and isinstance(listed := reply.result.get("tools"), list):
            room = max(0, MOST_LISTED - self.count)
            self.count += len(listed)
            reply.result["tools"] = list(self._readable(listed[:room]))
        return message

    def _readable(self, listed: list[Any]) -> Iterator[dict[str, Any]]:
        """The well-formed tools, as far as they are used."""
        for given in listed:
            known = given if isinstance(given, dict) else {}
            tool = {key: known[key] for key in _KEPT if known.get(key) is not None}
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


MOST_PAGES: Final = 20
MOST_LISTED: Final = 1_000  # tools of a listing; the others are ignored
MOST_BYTES: Final = 2_000_000  # of all answers to one request, with its handshake
MOST_REDIRECTS: Final = 3  # within the server's own origin; the client follows no others
CLOSING_SECONDS: Final = 1.0  # for closing the session after the answer
_LONGEST_TEXT: Final = 60_000  # characters of a result; the journal cuts it further
_CLIENT_INFO: Final = types.Implementation(name="rondo", version="0.2.0")
_UNREADABLE: Final = {types.PARSE_ERROR, types.CONNECTION_CLOSED}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConnection:
    """Sends one request to a server within `seconds`. Its methods raise ServerFailed and TimeoutError.

    `mode` is the protocol mode that a listing found; it saves a request. `on_tools_changed` is called when the server
    says that its tools have changed.
    """

    server: McpServer
    reach: Reach
    seconds: float
    mode: str = "auto"
    on_tools_changed: Callable[[], object] = lambda: None

    async def list_tools(self) -> Listing:
        """Return the server's tools in its own words, at most MOST_LISTED."""

        async def ask(client: Client) -> Listing:
            found: list[types.Tool] = []
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None or sieve.count >= MOST_LISTED:
                    break
            version = client.protocol_version
            mode = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
            return Listing(tools=tuple(found), mode=mode, left_out=tuple(sieve.left_out))

        sieve = Sieve()
        return await self._request(ask, sieve)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return the tool's output, and whether the tool reports a failure."""

        async def ask(client: Client) -> tuple[str, bool]:
            try:
                result = await _call(client, name, arguments)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                await client.list_tools()  # it names the arguments that the server wants in headers
                result = await _call(client, name, arguments)
            return _text(result), result.is_error

        return await self._request(ask)

    async def _request(self, ask: Callable[[Client], Awaitable[T]], sieve: Sieve | None = None) -> T:
        """Open a session and ask. Once there is an answer, a slow close of the session does not lose it."""
        answers: list[T] = []
        guard = Guard(self.reach)
        try:
            async with (
                asyncio.timeout(self.seconds) as limit,
                self._session(guard, sieve or Sieve()) as client,
            ):
                answers.append(await ask(client))
                limit.reschedule(asyncio.get_running_loop().time() + CLOSING_SECONDS)
        except Exception as error:  # noqa: BLE001 - a server's answer can make the client raise anything
            if not answers:
                # "from None": a chained traceback would show the request, with its headers and address
                raise _translated(error, guard, self.server) from None
        return answers[0]

    @asynccontextmanager
    async def _session(self, guard: Guard, sieve: Sieve) -> AsyncIterator[Client]:
        async def on_message(message: IncomingMessage) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self.on_tools_changed()

        async with httpx2.AsyncClient(
            transport=guard,
            headers=[("User-Agent", "Rondo"), *self.server.headers, ("Accept-Encoding", "identity")],
            timeout=httpx2.Timeout(None),
            trust_env=False,
            max_redirects=MOST_REDIRECTS,
        ) as http:
            transport = sieve.over(streamable_http_client(self.server.url, http_client=http))
            async with Client(
                transport, mode=self.mode, cache=None, client_info=_CLIENT_INFO, message_handler=on_message
            ) as client:
                yield client


async def _call(client: Client, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Send the call. `client.call_tool` would match the result against the server's regular expressions on our loop."""
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
    return await client.session.send_request(request, types.CallToolResult)


class Guard(GuardedTransport):
    """The transport to a server. `status` is that of the last answer to a POST: a server need not support GET.

    All its answers together have a bound.
    """

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach, MOST_BYTES)
        self.status = 0
        self._of_all = Bound(MOST_BYTES)

    def _bound(self) -> Bound:
        return self._of_all

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request and keep the status of the answer."""
        response = await super().handle_async_request(request)
        self.status = response.status_code if request.method == "POST" else self.status
        return response


def _translated(error: Exception, guard: Guard, server: McpServer) -> Exception:
    """Return our error for one of the client's. Unknown errors are returned as they are."""
    while isinstance(error, ExceptionGroup):  # from the client's task groups
        error = error.exceptions[0]
    if guard.refused is not None:
        return ServerFailed(guard.refused)
    if guard.status in (401, 403):
        return ServerFailed(f"it denied access with status {guard.status}; check the headers")
    if isinstance(error, TimeoutError):
        return TimeoutError()
    if 300 <= guard.status < 400:
        return ServerFailed("it redirects to another address; set that address instead")
    if guard.status >= 400:
        return ServerFailed(f"it answered with status {guard.status}")
    if isinstance(error, httpx2.ConnectError):
        return ServerFailed("it cannot be reached")
    return _protocol_error(error, server)


def _protocol_error(error: Exception, server: McpServer) -> Exception:
    if isinstance(error, MCPError) and error.code not in _UNREADABLE:
        return ServerFailed("it answered with an error", said=server.without_secrets(error.message)[:500])
    if isinstance(error, MCPError | ValidationError | httpx2.HTTPError | httpx2.StreamError):
        return ServerFailed("its answer cannot be read", unsure=True)
    return error


def _text(result: types.CallToolResult) -> str:
    """The result as text for the model."""
    parts = [_block(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    return "\n".join(parts)[:_LONGEST_TEXT]


def _block(block: types.ContentBlock) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ResourceLink):
        return f"[{block.name}: {block.uri}]"
    if isinstance(block, types.EmbeddedResource):
        held = block.resource
        return held.text if isinstance(held, types.TextResourceContents) else f"[{held.uri}: no text]"
    return f"[{block.type} of type {block.mime_type}: not shown]"
