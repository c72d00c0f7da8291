"""An OpenAI chat-completions server for tests, on the standard library alone.

It answers with the offline model's rules from what came over the wire, so that an answer proves
what the prompt held. The last user message may hold marks, which are taken out before it is read:

| mark | what the server does |
|---|---|
| ``[[hold:NAME]]`` | answers nothing until NAME is released; then, and later, it goes on |
| ``[[pause:NAME]]`` | the same, but after the first piece of text |
| ``[[fail:503]]`` ``[[fail:503x2]]`` | answers with this status, always / the first 2 times |
| ``[[drop]]`` ``[[drop:x2]]`` | breaks off after the first piece of text, always / the first 2 times |
| ``[[delay:0.5]]`` | waits so many seconds first |
| ``[[empty]]`` | answers with no text |
| ``[[reply:TEXT]]`` | answers with TEXT |
| ``[[judge-hold:NAME]]`` and so on | the same, for a request for a verdict on a reply, and only for such |

As a process: ``python -m agent_core.testing --port 0 --port-file FILE`` (the file gets the port).
It is driven over HTTP: ``POST /control/release`` ``{"name": NAME}`` or ``{"all": true}``;
``GET /control/requests`` lists ``{number, body, state, authorized}`` of every request, state being
received, held, answered, failed or gone; ``GET /control/held`` counts the held ones by name;
``POST /control/reset`` forgets requests and counts and releases all.
"""

from __future__ import annotations

import argparse
import re
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from agent_core import offline, offline_duties, testing_wire
from agent_core.models import ModelCall, ModelReply
from agent_core.testing_http import is_gone, serving
from agent_core.types import JSON

_MARK = re.compile(
    r"\[\[(?P<judge>judge-)?(?P<kind>hold|pause|fail|drop|delay|empty|reply)(?::(?P<value>[^\]]*))?\]\]"
)
_LOOK_AT_CLIENT_SECONDS = 0.5


@dataclass(slots=True)
class Received:
    """One request to the model, and what became of it."""

    number: int
    body: JSON
    authorized: bool
    state: str = "received"
    marks: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> JSON:
        """Return what ``GET /control/requests`` shows."""
        return {
            "number": self.number,
            "body": self.body,
            "authorized": self.authorized,
            "state": self.state,
        }


class ModelServer:
    """The server, in threads of this process. Use it as a context manager."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._http = serving(self, host, port)
        self._lock = threading.Lock()
        self._released: dict[str, threading.Event] = {}
        self._held: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._received: list[Received] = []
        self._script: list[ModelReply] = []
        self.port: int = self._http.server_address[1]
        self.base_url = f"http://{host}:{self.port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve, name="model-server", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release_all()
        self._http.shutdown()
        self._http.server_close()

    def serve(self) -> None:
        """Serve until ``shutdown`` by ``__exit__``, or for ever."""
        self._http.serve_forever(poll_interval=0.05)

    @property
    def requests(self) -> list[Received]:
        """Every request to the model so far."""
        with self._lock:
            return list(self._received)

    @property
    def held(self) -> dict[str, int]:
        """How many requests are held now, by name."""
        with self._lock:
            return {name: count for name, count in self._held.items() if count}

    def release(self, name: str) -> None:
        """Let go of what is held by this name, now and later."""
        self._gate(name).set()

    def release_all(self) -> None:
        """Let go of everything that is held by now."""
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

    def answer_with(self, *replies: ModelReply) -> None:
        """Answer the next requests with these, in their order, whatever they ask."""
        with self._lock:
            self._script.extend(replies)

    def receive(self, body: JSON, *, authorized: bool) -> Received:
        """Note a request; its marks are read from its last user message."""
        is_judge = offline_duties.judges(testing_wire.model_call(body).system_prompt)
        marks = _MARK.finditer(testing_wire.last_user_text(body))
        with self._lock:
            received = Received(
                number=len(self._received) + 1,
                body=body,
                authorized=authorized,
                marks={
                    mark["kind"]: mark["value"] or "" for mark in marks if bool(mark["judge"]) is is_judge
                },
            )
            self._received.append(received)
        return received

    def due(self, received: Received, kind: str) -> str | None:
        """Return the value of a ``fail`` or ``drop`` mark that applies to this request, else None."""
        value = received.marks.get(kind)
        if value is None:
            return None
        first, _, times = value.partition("x")
        with self._lock:
            key = f"{kind} {testing_wire.last_user_text(received.body)}"
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
                if is_gone(client):
                    received.state = "gone"
                    return False
            return True
        finally:
            with self._lock:
                self._held[name] -= 1

    def reply(self, received: Received) -> ModelReply:
        """Return what is to be answered. Raises ModelRefused as the offline model does."""
        with self._lock:
            if self._script:
                return self._script.pop(0)
        reply, delay = offline.think(_without_marks(testing_wire.model_call(received.body)))
        if "empty" in received.marks:
            reply = replace(reply, text="", calls=())
        if "reply" in received.marks:
            reply = replace(reply, text=received.marks["reply"], calls=())
        time.sleep(delay)
        return reply

    def _gate(self, name: str) -> threading.Event:
        with self._lock:
            return self._released.setdefault(name, threading.Event())


def _without_marks(call: ModelCall) -> ModelCall:
    entries = (replace(entry, content=_MARK.sub("", entry.content).strip(" ")) for entry in call.entries)
    return replace(call, entries=tuple(entries))


def main() -> None:
    """Serve as a process of its own until it is killed."""
    parser = argparse.ArgumentParser(prog="agent_core.testing", description="A model server for tests.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path)
    given = parser.parse_args()
    threading.stack_size(256 * 1024)  # hundreds of held requests are a thread each
    server = ModelServer(given.host, given.port)
    if given.port_file:
        temporary = given.port_file.with_suffix(".tmp")
        temporary.write_text(str(server.port))
        temporary.replace(given.port_file)  # whoever waits for the file never reads half of it
    server.serve()


if __name__ == "__main__":
    main()
