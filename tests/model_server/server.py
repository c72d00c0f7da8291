"""An OpenAI chat-completions server for tests, on the standard library alone.

It also speaks Anthropic's Messages and Google's Gemini API (see ``wire.py``).

It answers by the offline model's rules from the request it received, so that an answer proves what
the prompt contained. The last user message may contain marks, which are removed before it is read:

| mark | what the server does |
|---|---|
| ``[[hold:NAME]]`` | does not answer until NAME is released, now or earlier |
| ``[[pause:NAME]]`` | the same, but after the first piece of text |
| ``[[fail:503]]`` ``[[fail:503x2]]`` | answers with this status, always / the first 2 times |
| ``[[drop]]`` ``[[drop:x2]]`` | closes the connection after the first piece of text, always / the first 2 times |
| ``[[delay:0.5]]`` | waits 0.5 seconds first |
| ``[[empty]]`` | answers with no text |
| ``[[reply:TEXT]]`` | answers with TEXT |
| ``[[ends:length]]`` | ends by length, filter or refusal; ``cut``: without an end mark |
| ``[[think:TEXT]]`` | streams TEXT as reasoning first |
| ``[[judge-hold:NAME]]`` and so on | the same, only for requests for a verdict on a reply |

As a process: ``python -m tests.model_server --port-file FILE`` writes its port to the file.
It is controlled over HTTP: ``POST /control/release`` releases all; ``GET /control/held`` counts the held ones by name.
Every reply is a stream, as our clients ask for it.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.offline import duties, model
from agent_core.types import JSON, Ended
from tests.model_server import oddities, wire
from tests.model_server.oddities import DONE, Odd
from tests.model_server.wire import Dialect, Received, dialect_of


def _is_gone(client: socket.socket) -> bool:
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
        if self.path == "/control/held":
            self._json(200, {"held": model.held})
        elif self.path.endswith("/models"):
            self._json(200, {"object": "list", "data": [{"id": "test", "object": "model"}]})
        else:
            self._json(404, wire.error(404, "There is nothing here."))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw or b"{}")
        if self.path == "/control/release":
            self.server.model.release_all()
            self._json(200, {"ok": True})
        elif refused := self.server.model.rejection(self.path, body):
            self._json(400, refused)
        elif (dialect := dialect_of(self.path)) is not None:
            self._complete(dialect.chat_body(self.path, body), dialect)
        elif urlsplit(self.path).path.endswith("/chat/completions"):
            self._complete(body)
        else:
            self._json(404, wire.error(404, "There is nothing here."))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Stay quiet."""

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
        status, failure = model.failure
        if not status and (status := int(model.due(received, "fail") or 0)):
            failure = wire.error(status, "The test asked for this.")
        if status:
            received.state = "failed"
            self._json(status, failure, model.failure_headers)
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
            self._stream(received, reply.pieces, reply.content_type)
            return
        body, thought = received.body, received.marks.get("think", "")
        made = dialect.events(body, reply, thought) if dialect else None
        events = made or wire.chunks(body, reply, thought)
        end = () if dialect or reply.ended_by is Ended.CUT else (DONE,)
        self._stream(received, chain((oddities.sse(each, each.get("type", "")) for each in events), end))

    def _stream(
        self, received: Received, pieces: Iterable[str], content_type: str = "text/event-stream"
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index, piece in enumerate(pieces):
            data = piece.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            if index == 1 and not self._go_on(self.server.model, received):
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")
        received.state = "answered"

    def _go_on(self, model: ModelServer, received: Received) -> bool:
        """Apply the marks ``drop`` and ``pause`` after the first piece. False: close the connection."""
        if model.due(received, "drop") is not None:
            received.state = "failed"
            return False
        pause = received.marks.get("pause")
        return pause is None or model.hold(received, pause, self.connection)

    def _json(self, status: int, body: JSON, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


_MARK = re.compile(
    r"\[\[(?P<judge>judge-)?(?P<kind>hold|pause|fail|drop|delay|empty|reply|think|ends)(?::(?P<value>[^\]]*))?\]\]"
)
_LOOK_AT_CLIENT_SECONDS = 0.5


class ModelServer:
    """The server, in threads of this process. Use it as a context manager."""

    def __init__(self) -> None:
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.model = self
        self._lock = threading.Lock()
        self._released: dict[str, threading.Event] = {}
        self._held: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._received: list[Received] = []
        self._script: list[ModelReply | Odd] = []
        self.failure: tuple[int, JSON] = (0, {})
        self.failure_headers: dict[str, str] = {}  # of every failed answer
        self.strict = False  # rejects what any of the large providers rejects (see ``oddities.py``)
        self.most_characters = 0  # of a request's JSON, as the model's context is; 0: any number
        self.forbidden = ""  # a request that contains this word is rejected
        self.rejected: list[str] = []  # why requests were rejected
        self.port: int = self._http.server_address[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve, name="model-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release_all()
        self._http.shutdown()
        self._http.server_close()

    def serve(self) -> None:
        """Serve until ``__exit__``, or for ever."""
        self._http.serve_forever(poll_interval=0.05)

    @property
    def requests(self) -> list[Received]:
        """Every request to the model so far."""
        with self._lock:
            return list(self._received)

    @property
    def held(self) -> dict[str, int]:
        """The number of requests held now, by name."""
        with self._lock:
            return {name: count for name, count in self._held.items() if count}

    def release(self, name: str) -> None:
        """Release what is held by this name, now and later."""
        self._gate(name).set()

    def release_all(self) -> None:
        """Release everything that is held now."""
        with self._lock:
            gates = list(self._released.values())
        for gate in gates:
            gate.set()

    def reset(self) -> None:
        """Release all, and forget requests, counts and names."""
        self.release_all()
        with self._lock:
            self._released.clear()
            self._seen.clear()
            self._received.clear()
            self._script.clear()
            self.failure, self.failure_headers = (0, {}), {}
            self.strict, self.most_characters, self.forbidden = False, 0, ""
            self.rejected.clear()

    def answer_with(self, *replies: ModelReply | Odd) -> None:
        """Answer the next requests with these replies in order, whatever they ask."""
        with self._lock:
            self._script.extend(replies)

    def forget_script(self) -> None:
        """Drop the remaining replies of ``answer_with``."""
        with self._lock:
            self._script.clear()

    def fail_with(self, status: int, body: JSON) -> None:
        """Answer every request from now on with this status and body; status 0 ends this."""
        with self._lock:
            self.failure = (status, body)

    def rejection(self, path: str, body: JSON) -> JSON:
        """Return the error with which a strict server rejects the request; {} if it does not."""
        text = json.dumps(body, ensure_ascii=False)
        why, code = oddities.problem(path, body) if self.strict else "", ""
        if not why and self.forbidden and self.forbidden in text:
            why, code = "The request was flagged by the content policy.", "content_policy_violation"
        if not why and 0 < self.most_characters < len(text):
            why = oddities.too_long(path, len(text) // 4, self.most_characters // 4)
        if not why:
            return {}
        with self._lock:
            self.rejected.append(why)
        return oddities.error(path, 400, why, code)

    def receive(self, body: JSON, *, path: str, headers: dict[str, str]) -> Received:
        """Record a request and the marks in its last user message."""
        is_judge = duties.asks_for_verdict(wire.model_call(body).system_prompt)
        found = _MARK.finditer(wire.last_user_text(body))
        marks = {mark["kind"]: mark["value"] or "" for mark in found if bool(mark["judge"]) is is_judge}
        received = Received(body=body, path=path, headers=headers, marks=marks)
        with self._lock:
            self._received.append(received)
        return received

    def due(self, received: Received, kind: str) -> str | None:
        """Return the value of a ``fail`` or ``drop`` mark that applies to this request, else None."""
        value = received.marks.get(kind)
        if value is None:
            return None
        first, _, times = value.partition("x")
        with self._lock:
            key = f"{kind} {wire.last_user_text(received.body)}"
            self._seen[key] += 1
            return first if not times or self._seen[key] <= int(times) else None

    def hold(self, received: Received, name: str, client: socket.socket) -> bool:
        """Wait for the release (True) or for the client to go away (False)."""
        gate = self._gate(name)
        received.state = "held"
        with self._lock:
            self._held[name] += 1
        try:
            while not gate.wait(_LOOK_AT_CLIENT_SECONDS):
                if _is_gone(client):
                    received.state = "gone"
                    return False
            return True
        finally:
            with self._lock:
                self._held[name] -= 1

    def reply(self, received: Received) -> ModelReply | Odd:
        """Return the answer. Raises ModelRefused as the offline model does."""
        with self._lock:
            if self._script:
                return self._script.pop(0)
        reply, delay = model.reply_with_delay(_without_marks(wire.model_call(received.body)))
        if "empty" in received.marks:
            reply = replace(reply, text="", calls=())
        if "reply" in received.marks:
            reply = replace(reply, text=received.marks["reply"], calls=())
        if "ends" in received.marks:
            reply = replace(reply, ended_by=Ended(received.marks["ends"]))
        time.sleep(delay)
        return reply

    def _gate(self, name: str) -> threading.Event:
        with self._lock:
            return self._released.setdefault(name, threading.Event())


def _without_marks(call: ModelCall) -> ModelCall:
    entries = (replace(entry, content=_MARK.sub("", entry.content).strip(" ")) for entry in call.entries)
    return replace(call, entries=tuple(entries))
