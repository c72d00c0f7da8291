"""`manage.py mcp`: speak MCP on standard input and output, and pass the messages on to the server's `/mcp`.

For clients that start a program instead of using an address. It runs without Django: it is a client of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from config.installation import COMMAND, DATA_FOLDER

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 120.0  # a call waits at most 50 s
MISSING = "rondo: no server: set RONDO_URL and RONDO_TOKEN, or name the data folder of a running `up` with --data-dir"
AWAY = "The Rondo server does not answer; check that it runs."


def mcp_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND} mcp",
        description="Speak MCP on standard input and output, for clients that start a program.",
        epilog="RONDO_URL and RONDO_TOKEN name another server than that of the data folder.",
    )
    parser.add_argument(
        "--data-dir", default=DATA_FOLDER, type=Path, help=f"folder of `{COMMAND} up` (default: %(default)s)"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Pass messages on until standard input ends; the exit code is 1 when no server is named."""
    folder: Path = mcp_parser().parse_args(arguments).data_dir
    url, token = server_of(os.environ.get("RONDO_URL", ""), os.environ.get("RONDO_TOKEN", ""), folder)
    if not url or not token:
        sys.stderr.write(f"{MISSING}\n")
        return 1
    import anyio

    anyio.run(bridge, f"{url.rstrip('/')}/mcp", token)
    return 0


def server_of(url: str, token: str, folder: Path) -> tuple[str, str]:
    """Return the given address and token, else those of the folder's `up`. Its token is for its own address only."""
    try:
        stored = json.loads((folder / "connection.json").read_text())
        found = {name: str(stored[name]) for name in ("url", "token")}
    except (OSError, ValueError, KeyError, TypeError):
        return url, token
    url = url or found["url"]
    return url, token or (found["token"] if url == found["url"] else "")


async def bridge(url: str, token: str) -> None:
    """Pass each request to the server and its answer back, until the client closes its end."""
    import anyio
    import httpx2
    from mcp.server.stdio import stdio_server

    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
        stdio_server() as (from_client, to_client),
        from_client,
        to_client,
        anyio.create_task_group() as group,
    ):
        exchanges = Bridge(url, http, to_client)
        http.event_hooks = {"response": [exchanges.note_session]}
        async for given in from_client:
            if not isinstance(given, Exception):  # a line that is no message
                exchanges.take(given, group)
        group.cancel_scope.cancel()


class Bridge:
    """The requests under way. Each has a transport of its own, so that one that fails does not end the others."""

    def __init__(self, url: str, http: Any, to_client: Any) -> None:
        self._url, self._http, self._to_client = url, http, to_client
        self._version = ""  # that a handshake has agreed on; since 2026-07-28 each request names its own
        self._session = ""  # that a handshake has given, which tells the server what the client can do
        self._under_way: dict[Any, Any] = {}  # cancel scopes, by the id of the request

    async def note_session(self, response: Any) -> None:
        """Keep the session id that a response gives."""
        self._session = response.headers.get("mcp-session-id", self._session)

    def take(self, given: Any, group: Any) -> None:
        """Begin a request, or pass on a person's answer to a question.

        Only one kind of notification has an effect, a cancellation: the server keeps no state of a client.
        """
        from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

        message = given.message
        if isinstance(message, JSONRPCRequest):
            group.start_soon(self._exchange, given)
        elif isinstance(message, JSONRPCResponse | JSONRPCError):
            group.start_soon(self._reply, message)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            request_id = (message.params or {}).get("requestId")
            scope = self._under_way.get(request_id) if isinstance(request_id, str | int) else None
            if scope is not None:
                scope.cancel()

    async def _exchange(self, given: Any) -> None:
        import anyio
        from mcp.shared.message import ClientMessageMetadata, SessionMessage
        from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError

        message = given.message
        given.metadata = ClientMessageMetadata(headers=self._headers(message))
        with anyio.CancelScope() as scope:
            self._under_way[message.id] = scope
            try:
                answer = await self._ask(given)
            except Exception:  # noqa: BLE001 - whatever went wrong, the request gets an answer
                error = ErrorData(code=INTERNAL_ERROR, message=AWAY)
                answer = SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            await self._to_client.send(answer)
        if self._under_way.get(message.id) is scope:
            del self._under_way[message.id]

    async def _reply(self, message: Any) -> None:
        """Pass on the answer to a question of the server. If that fails, the question stays open."""
        import httpx2

        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        body = message.model_dump_json(by_alias=True, exclude_none=True)
        with suppress(httpx2.HTTPError):
            await self._http.post(self._url, content=body, headers=headers | self._of_session())

    async def _ask(self, given: Any) -> Any:
        """Pass on the server's progress and questions, then return its answer. Raises any error of the transport."""
        from mcp.client.streamable_http import streamable_http_client

        transport = streamable_http_client(self._url, http_client=self._http, terminate_on_close=False)
        async with transport as (from_server, to_server):
            await to_server.send(given)
            async for answer in from_server:
                if isinstance(answer, Exception):
                    raise answer
                if hasattr(answer.message, "method"):
                    await self._to_client.send(answer)
                    continue
                result = getattr(answer.message, "result", None)
                if isinstance(result, dict) and isinstance(agreed := result.get("protocolVersion"), str):
                    self._version = agreed
                return answer
        raise ConnectionError

    def _headers(self, message: Any) -> dict[str, str]:
        """The HTTP headers that repeat what a request says, as the transport over HTTP requires."""
        from mcp.shared.inbound import (
            MCP_METHOD_HEADER,
            MCP_NAME_HEADER,
            MCP_PROTOCOL_VERSION_HEADER,
            encode_header_value,
        )
        from mcp_types import PROTOCOL_VERSION_META_KEY

        params = message.params or {}
        meta = params.get("_meta")
        named = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
        if named is None:
            return {} if message.method == "initialize" else self._of_session()
        version = named if isinstance(named, str) else self._version
        headers = {MCP_PROTOCOL_VERSION_HEADER: encode_header_value(version)} if version else {}
        headers[MCP_METHOD_HEADER] = encode_header_value(message.method)
        name = params.get("taskId") if message.method.startswith("tasks/") else params.get("name")
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        return headers

    def _of_session(self) -> dict[str, str]:
        """The headers after a handshake: the revision that it has agreed on, and the session."""
        from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER, encode_header_value

        version = {MCP_PROTOCOL_VERSION_HEADER: encode_header_value(self._version)} if self._version else {}
        return version | ({"Mcp-Session-Id": self._session} if self._session else {})
