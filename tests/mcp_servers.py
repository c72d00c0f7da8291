"""MCP servers for tests: a real one, on the protocol's own package, and one that answers as a test likes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_core import addresses
from agent_core.addresses import NameLookups
from tests.fleet import until


class Docs:
    """A server with a few tools, in a thread of this process; keeps what it was asked.

    `old`: it knows the protocol's earlier way alone, with a handshake and sessions.
    """

    url = ""  # while it serves for a fixture

    def __init__(self, *, old: bool = False) -> None:
        from mcp.server.mcpserver import MCPServer

        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.methods: list[str] = []
        self.gate = threading.Event()
        self.server = MCPServer("docs")
        self._old = old
        self.tool("search", self._search, description="Finds pages.", read_only_hint=True)
        self.tool("note", self._note, description="Keeps a note.")
        self.tool("erase", self._note, description="Erases a page.", destructive_hint=True)
        self.tool("set", self._note, description="Sets a value.", idempotent_hint=True)
        self.tool("wait", self._wait, description="Takes its time.", read_only_hint=True)
        self.tool("wait_and_note", self._wait, description="Takes its time.")
        self.tool("leak", self._leak, description="Says what it was sent.", read_only_hint=True)
        self.tool("fail", self._fail, description="Fails.", read_only_hint=True)
        self.tool("long", lambda: "x" * 70_000, description="Says much.", read_only_hint=True)

    def tool(self, name: str, run: Callable[..., Any], description: str | None = None, **hints: Any) -> None:
        from mcp_types import ToolAnnotations

        annotations = ToolAnnotations(**hints) if hints else None
        self.server.add_tool(run, name=name, description=description, annotations=annotations)

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
        import uvicorn

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
    """Answers every request as the test likes."""

    protocol_version = "HTTP/1.1"
    answer: Callable[[Handler], object]
    asked: list[dict[str, str]]

    def do_POST(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        type(self).answer(self)

    do_GET = do_POST  # noqa: N815 - the standard library calls it so

    def send(self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
        for name, value in (own | headers).items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def strange(
    answer: Callable[[Handler], object], *, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server with this answer to everything: its address, and the headers that it was sent."""
    asked: list[dict[str, str]] = []
    handler = type("Strange", (Handler,), {"answer": answer, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp", asked
        finally:
            server.shutdown()


CERTIFICATE = Path(__file__).parent / "data" / "tls_for_tests.pem"  # of pages.test, signed by itself


def tls_of_tests(names: list[Any]) -> ssl.SSLContext:
    """A server's side of TLS, which notes the host names that clients send."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    return context


def resolve_by(monkeypatch: pytest.MonkeyPatch, resolve: Callable[..., Any]) -> None:
    """Have this function in place of the system's resolver, and no kept answers."""
    addresses.LOOKUPS.put(NameLookups())
    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def names_resolve_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name that ends in `.test` is this machine's."""
    real = socket.getaddrinfo

    def resolve(host: Any, *more: Any, **named: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".test") else host, *more, **named)

    resolve_by(monkeypatch, resolve)
