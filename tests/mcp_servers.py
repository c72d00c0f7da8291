"""MCP servers for tests: a real one, on the protocol's own package, and one that answers as a test likes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from tests.fleet import until

READ = ToolAnnotations(read_only_hint=True)
ERASE = ToolAnnotations(destructive_hint=True)
AGAIN = ToolAnnotations(idempotent_hint=True)


class Docs:
    """A server with a few tools, in a thread of this process; keeps what it was asked.

    `old`: it knows the protocol's earlier way alone, with a handshake and sessions.
    """

    url = ""  # while it serves for a fixture

    def __init__(self, *, old: bool = False) -> None:
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.methods: list[str] = []
        self.gate = threading.Event()
        self.server = MCPServer("docs")
        self._old = old
        self.tool("search", self._search, description="Finds pages.", annotations=READ)
        self.tool("note", self._note, description="Keeps a note.")
        self.tool("erase", self._note, description="Erases a page.", annotations=ERASE)
        self.tool("set", self._note, description="Sets a value.", annotations=AGAIN)
        self.tool("wait", self._wait, description="Takes its time.", annotations=READ)
        self.tool("wait_and_note", self._wait, description="Takes its time.")
        self.tool("leak", self._leak, description="Says what it was sent.", annotations=READ)
        self.tool("fail", self._fail, description="Fails.", annotations=READ)
        self.tool("long", lambda: "x" * 70_000, description="Says much.", annotations=READ)

    def tool(self, name: str, run: Callable[..., Any], **more: Any) -> None:
        self.server.add_tool(run, name=name, **more)

    def _search(self, words: str) -> str:
        self.calls.append(f"search {words}")
        return f"found {words}"

    def _note(self, text: str) -> str:
        self.calls.append(f"note {text}")
        return f"noted {text}"

    def _wait(self) -> str:
        self.calls.append("wait")
        self.gate.wait(30)
        return "waited"

    def _leak(self) -> str:
        return str(self.headers[-1])

    def _fail(self) -> str:
        raise ValueError(f"it broke, {self.headers[-1].get('authorization')}")

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve; the address."""
        listening = socket.create_server(("127.0.0.1", 0))
        app = self.server.streamable_http_app()

        async def noted(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.headers.append(headers)
                self.methods.append(headers.get("mcp-method", scope["method"]))
                if self._old and headers.get("mcp-method") == "server/discover":
                    await send({"type": "http.response.start", "status": 400, "headers": []})
                    await send({"type": "http.response.body", "body": b""})
                    return
            await app(scope, receive, send)

        config = uvicorn.Config(noted, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
        web = uvicorn.Server(config)
        thread = threading.Thread(target=web.run, args=([listening],), daemon=True)
        thread.start()
        try:
            until(lambda: web.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            self.gate.set()
            web.should_exit = True
            thread.join(10)
            listening.close()


class Handler(BaseHTTPRequestHandler):
    """Answers every POST as the test likes."""

    protocol_version = "HTTP/1.1"
    answer: Callable[[Handler], None]
    asked: list[dict[str, str]]

    def do_POST(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        type(self).answer(self)

    def send(self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def strange(
    answer: Callable[[Handler], None], *, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server with this answer to everything: its address, and the headers that it was sent."""
    asked: list[dict[str, str]] = []
    handler = type("Strange", (Handler,), {"answer": answer, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp", asked
        finally:
            server.shutdown()
