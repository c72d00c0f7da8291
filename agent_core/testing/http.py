"""The HTTP side of the test server: see ``server.py``."""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from agent_core.ended import Ended
from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from agent_core.testing import wire
from agent_core.testing.dialects import Anthropic, Google, dialect_of
from agent_core.testing.odd import DONE, Odd
from agent_core.testing.responses import Responses
from agent_core.types import JSON

if TYPE_CHECKING:
    from agent_core.testing import ModelServer, Received

Dialect = Anthropic | Google | Responses


def make_http_server(model: ModelServer, host: str, port: int) -> ThreadingHTTPServer:
    """Return the HTTP server, bound but not yet serving."""
    server = _Server((host, port), _Handler)
    server.model = model
    return server


def is_gone(client: socket.socket) -> bool:
    """Whether the client has closed its end. select() would fail above 1,024 open files."""
    poll = select.poll()
    try:
        poll.register(client, select.POLLIN)
        return bool(poll.poll(0)) and client.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True
    model: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no trace of a client that closed its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True

    def do_GET(self) -> None:
        model = self.server.model
        if self.path == "/control/requests":
            self._json(200, {"requests": [received.to_json() for received in model.requests]})
        elif self.path == "/control/held":
            self._json(200, {"held": model.held})
        elif self.path.endswith("/models"):
            self._json(200, {"object": "list", "data": [{"id": "test", "object": "model"}]})
        else:
            self._json(404, wire.error(404, "There is nothing here."))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw or b"{}")
        if self.path.startswith("/control/"):
            self._control(body)
        elif refused := self.server.model.rejection(self.path, body):
            self._json(400, refused)
        elif urlsplit(self.path).path.endswith("/v1/responses"):
            self._complete(Responses().chat_body(self.path, body), Responses())
        elif (dialect := dialect_of(self.path)) is not None:
            self._complete(dialect.chat_body(self.path, body), dialect)
        elif urlsplit(self.path).path.endswith("/chat/completions"):
            self._complete(body)
        else:
            self._json(404, wire.error(404, "There is nothing here."))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Stay quiet."""

    def _control(self, body: JSON) -> None:
        model = self.server.model
        if self.path == "/control/reset":
            model.reset()
        elif body.get("all"):
            model.release_all()
        else:
            model.release(body["name"])
        self._json(200, {"ok": True})

    def _complete(self, body: JSON, dialect: Dialect | None = None) -> None:
        model = self.server.model
        received = model.receive(
            body, path=self.path, headers={name.lower(): value for name, value in self.headers.items()}
        )
        time.sleep(float(received.marks.get("delay") or 0))
        hold = received.marks.get("hold")
        if hold is not None and not model.hold(received, hold, self.connection):
            self.close_connection = True
            return
        failure_status, failure_body = model.failure
        if failure_status:
            received.state = "failed"
            self._json(failure_status, failure_body, model.failure_headers)
            return
        status = model.due(received, "fail")
        if status is not None:
            received.state = "failed"
            self._json(
                int(status), wire.error(int(status), "The test asked for this."), model.failure_headers
            )
            return
        try:
            self._answer(received, model.reply(received), dialect)
        except ModelRefused as error:
            received.state = "failed"
            self._json(400, wire.error(400, str(error)))
        except OSError:
            received.state = "gone"
            self.close_connection = True

    def _answer(self, received: Received, reply: ModelReply | Odd, dialect: Dialect | None) -> None:
        if isinstance(reply, Odd):
            self._send_pieces(received, reply.pieces, reply.content_type)
            return
        body, thought = received.body, received.marks.get("think", "")
        if body.get("stream") and dialect is not None:
            self._stream(received, dialect.events(body, reply, thought), end="")
        elif body.get("stream"):
            chunks = (("", each) for each in wire.chunks(body, reply, received.number, thought))
            self._stream(received, chunks, end="" if reply.ended_by is Ended.CUT else DONE)
        elif dialect is not None:
            self._json(200, dialect.answer(body, reply, thought))
        else:
            self._json(200, wire.completion(body, reply, received.number))
        if not body.get("stream"):
            received.state = "answered"

    def _stream(self, received: Received, events: Iterable[tuple[str, JSON]], end: str) -> None:
        model = self.server.model
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index, (name, data) in enumerate(events):
            self._piece((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n")
            if index == 1 and not self._go_on(model, received):
                self.close_connection = True
                return
        if end:
            self._piece(end)
        self.wfile.write(b"0\r\n\r\n")
        received.state = "answered"

    def _send_pieces(self, received: Received, pieces: Iterable[str], content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self._piece(piece)
        self.wfile.write(b"0\r\n\r\n")
        received.state = "answered"

    def _go_on(self, model: ModelServer, received: Received) -> bool:
        """Apply the marks ``drop`` and ``pause`` after the first piece. False: close the connection."""
        if model.due(received, "drop") is not None:
            received.state = "failed"
            return False
        pause = received.marks.get("pause")
        return pause is None or model.hold(received, pause, self.connection)

    def _piece(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _json(self, status: int, body: JSON, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
