"""Receivers of deliveries: a real HTTP server and a real mail server, whose temper a test sets."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request as it came; `temper`: what the receiver made of it."""

    path: str
    headers: dict[str, str]
    body: bytes
    temper: str

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.body)["data"])

    @property
    def key(self) -> str:
        return self.headers["webhook-id"]


@dataclass(kw_only=True)
class Receiver:
    """An HTTP server. `tempers`: by path, what it does with each next request; the last one stays. Default: `take`.

    `take` answers 200, a number that status, `hang` nothing until `release` (`hang500`: then that), `half` closes in
    the middle of its answer, `redirect` leads to /elsewhere.
    """

    tempers: dict[str, list[str]] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    server: Any = None
    lock: Any = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def at(self, number: int) -> str:
        """The same at another address of this machine: another place."""
        return f"http://127.0.0.{number}:{self.server.server_address[1]}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def set(self, path: str, *tempers: str) -> str:
        """The address of the path; from now on it behaves so."""
        self.tempers[path] = list(tempers)
        return f"{self.url}{path}"

    def taken(self, path: str | None = None) -> list[Received]:
        """What was taken, in its order."""
        return [each for each in self.requests if each.temper == "take" and path in (None, each.path)]

    def note(self, handler: BaseHTTPRequestHandler) -> str:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self.lock:
            tempers = self.tempers.get(handler.path, ["take"])
            temper = tempers.pop(0) if len(tempers) > 1 else tempers[0]
            self.requests.append(Received(path=handler.path, headers=headers, body=body, temper=temper))
        return temper


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        temper = self.receiver.note(self)
        self.close_connection = True
        if temper.startswith("hang"):
            self.receiver.released.wait(60)
        temper = temper.removeprefix("hang") or temper
        if temper == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhal")
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status = 302 if temper == "redirect" else int(temper) if temper.isdigit() else 200
        with suppress(OSError):  # who waited too long has hung up
            self.send_response(status)
            if temper == "redirect":
                self.send_header("Location", f"{self.receiver.url}/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def http_receiver(address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """One that listens."""
    receiver = Receiver()
    handler = type("Own", (_Handler,), {"receiver": receiver})
    receiver.server = ThreadingHTTPServer((address, 0), handler)
    receiver.server.daemon_threads = True
    if tls is not None:
        receiver.server.socket = tls.wrap_socket(receiver.server.socket, server_side=True)
    receiver.server.handle_error = lambda *_: None
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        receiver.server.shutdown()
        thread.join(10)
        receiver.server.server_close()


@dataclass(kw_only=True)
class MailServer:
    """An SMTP server. `refuse`: what it answers to a letter instead of taking it; `hang`: it never does."""

    letters: list[Any] = field(default_factory=list)
    refuse: str = ""
    hang: bool = False
    port: int = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - the library's
        """One letter."""
        if self.hang:
            await asyncio.sleep(30)
        if self.refuse:
            return self.refuse
        content = envelope.content
        assert isinstance(content, bytes)
        self.letters.append(message_from_bytes(content, policy=policy.default))
        return "250 taken"


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """One that listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = MailServer(port=port)
    controller = Controller(server, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield server
    finally:
        controller.stop()
