"""Speaking with an MCP server, by the protocol's own client over HTTP.

Everything that knows that client is here; importing this takes a second and 30 MB, so only a worker whose agents
have servers does. Each listing and each call is a session of its own: nothing is open between two of them.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, Final, TypeVar, cast

import httpx2
import mcp_types as types
from mcp.client import Client, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agent_core import addresses
from agent_core.addresses import NoAddress, Reach
from agent_core.exceptions import ServerFailed
from agent_core.mcp_listed import Listed, Listing
from agent_core.mcp_server import McpServer

MOST_PAGES: Final = 20
MOST_LISTED: Final = 1_000  # tools that are looked at
MOST_BYTES: Final = 2_000_000  # of one answer
MOST_REDIRECTS: Final = 3  # within its own origin; the client follows no others
LOOK_UP_SECONDS: Final = 5.0
CLOSING_SECONDS: Final = 1.0  # for saying good-bye once the answer is there
_LONGEST_BLOCKS: Final = 60_000  # characters; what is shown is cut by whoever journals it
_US: Final = types.Implementation(name="rondo", version="0.1.0")
_UNREADABLE: Final = {types.PARSE_ERROR, types.CONNECTION_CLOSED}
T = TypeVar("T")


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Of our own: the loop's are for the models' connections, which must not wait for a stranger's name server."""
    return ThreadPoolExecutor(8, "rondo-mcp-resolve")


@cache
def trust() -> ssl.SSLContext:
    """Whose certificates are believed; made once, for it takes its time."""
    return ssl.create_default_context()


async def listed(server: McpServer, reach: Reach, seconds: float) -> Listing:
    """The server's tools as it names them. ServerFailed, asyncio.TimeoutError."""

    async def ask(client: Client) -> Listing:
        found: list[Listed] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [_listed(tool) for tool in page.tools[: MOST_LISTED - len(found)]]
            cursor = page.next_cursor
            if cursor is None or len(found) >= MOST_LISTED:
                break
        version = client.protocol_version
        mode = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
        return Listing(tools=tuple(found), mode=mode)

    return await _asked(server, reach, seconds, "auto", ask, lambda: None)


async def called(
    server: McpServer,
    reach: Reach,
    seconds: float,
    mode: str,
    asked: tuple[str, dict[str, Any]],
    changed: Callable[[], None],
) -> tuple[str, bool]:
    """What a tool says, and whether that is a failure. ServerFailed, asyncio.TimeoutError.

    `asked` is the tool's own name with its arguments; `changed` is called when the server says that its tools are
    others now. `mode` is that of its listing, which saves asking anew how it speaks.
    """
    name, arguments = asked

    async def ask(client: Client) -> tuple[str, bool]:
        try:
            result = await _call(client, name, arguments)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
            await client.list_tools()  # it wants arguments in headers, too, and the listing says which
            result = await _call(client, name, arguments)
        return _text(result), result.is_error

    return await _asked(server, reach, seconds, mode, ask, changed)


async def _call(client: Client, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Not the client's own `call_tool`: it would hold the answer against a stranger's patterns, on our one loop."""
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
    return await client.session.send_request(request, types.CallToolResult)


async def _asked(
    server: McpServer,
    reach: Reach,
    seconds: float,
    mode: str,
    ask: Callable[[Client], Awaitable[T]],
    changed: Callable[[], None],
) -> T:
    """One session, at most so long. An answer that is there is not lost to a slow good-bye."""
    answers: list[T] = []
    guard = Guard(reach)
    try:
        async with asyncio.timeout(seconds) as limit, _session(server, guard, mode, changed) as client:
            answers.append(await ask(client))
            limit.reschedule(asyncio.get_running_loop().time() + CLOSING_SECONDS)
    except Exception as error:  # noqa: BLE001 - a stranger may bring the client to anything
        if answers:
            return answers[0]
        raise _in_words(error, guard, server) from None  # a chain would show what was sent, and to where
    return answers[0]


@asynccontextmanager
async def _session(
    server: McpServer, guard: Guard, mode: str, changed: Callable[[], None]
) -> AsyncIterator[Client]:
    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed()

    async with httpx2.AsyncClient(
        transport=guard,
        headers=[("User-Agent", "Rondo"), *server.headers, ("Accept-Encoding", "identity")],
        timeout=httpx2.Timeout(None),
        trust_env=False,
        max_redirects=MOST_REDIRECTS,
    ) as http:
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, mode=mode, cache=None, client_info=_US, message_handler=heard) as client:
            yield client


class Guard(httpx2.AsyncBaseTransport):
    """Sends each request, a redirected one too, to an address that was looked at, with its name in Host and TLS."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._inner = httpx2.AsyncHTTPTransport(verify=trust(), trust_env=False)
        self.status = 0  # of the last answer to a POST: servers need not have the stream of a GET
        self.refused: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Try the addresses one after the other."""
        url = request.url
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        failed: Exception = httpx2.ConnectError("no address")
        for address in await self._addresses(host, port):
            there = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # Host is among them already
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                response = await self._inner.handle_async_request(there)
            except httpx2.ConnectError as error:
                failed = error
                continue
            self.status = response.status_code if request.method == "POST" else self.status
            return await self._bounded(response)
        raise failed

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _addresses(self, host: str, port: int) -> list[str]:
        may = self._reach.may(host.strip("[]"), port)
        try:
            look = partial(addresses.look_up, host.strip("[]"), port, may, LOOK_UP_SECONDS)
            return await asyncio.get_running_loop().run_in_executor(_resolvers(), look)
        except NoAddress as error:
            self.refused = str(error)
            raise httpx2.ConnectError("no address") from None

    async def _bounded(self, response: httpx2.Response) -> httpx2.Response:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()  # we asked for none, and what is packed may be anything
            raise httpx2.RemoteProtocolError("the answer is packed")
        response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream))
        return response


class _Bounded(httpx2.AsyncByteStream):
    """A body up to the limit."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for piece in self._inner:
            taken += len(piece)
            if taken > MOST_BYTES:
                raise httpx2.RemoteProtocolError("the answer is too long")
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()


def _in_words(error: Exception, guard: Guard, server: McpServer) -> Exception:
    while isinstance(error, ExceptionGroup):  # of the client's task groups
        error = error.exceptions[0]
    if guard.refused is not None:
        return ServerFailed(guard.refused)
    if guard.status in (401, 403):
        return ServerFailed(f"it does not let us in ({guard.status})")
    if isinstance(error, TimeoutError):
        return TimeoutError()
    if 300 <= guard.status < 400:
        return ServerFailed("it leads on to another place, whose address must be set instead")
    if guard.status >= 400:
        return ServerFailed(f"it answered with status {guard.status}")
    return _of_client(error, server)


def _of_client(error: Exception, server: McpServer) -> Exception:
    if isinstance(error, httpx2.ConnectError):
        return ServerFailed("it cannot be reached")
    if isinstance(error, MCPError) and error.code not in _UNREADABLE:
        return ServerFailed("it answered with an error", said=server.without_secrets(error.message)[:500])
    if isinstance(error, MCPError | ValidationError | httpx2.HTTPError | httpx2.StreamError):
        return ServerFailed("its answer cannot be read", unsure=True)
    return error


def _listed(tool: types.Tool) -> Listed:
    hints = tool.annotations or types.ToolAnnotations()
    return Listed(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=tool.input_schema,
        read_only=hints.read_only_hint is True,
        destructive=hints.destructive_hint is True,
        idempotent=hints.idempotent_hint is True,
    )


def _text(result: types.CallToolResult) -> str:
    """What the model can read of it."""
    parts = [_block(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    return "\n".join(parts)[:_LONGEST_BLOCKS]


def _block(block: types.ContentBlock) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ResourceLink):
        return f"[{block.name}: {block.uri}]"
    if isinstance(block, types.EmbeddedResource):
        held = block.resource
        return held.text if isinstance(held, types.TextResourceContents) else f"[{held.uri}: no text]"
    return f"[{block.type} of type {block.mime_type}: not shown]"
