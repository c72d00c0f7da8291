"""An OpenAI chat-completions server for tests, on the standard library alone.

It also speaks Anthropic's Messages and Google's Gemini API (see ``dialects.py``).

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

As a process: ``python -m agent_core.testing --port 0 --port-file FILE`` writes its port to the file.
It is controlled over HTTP: ``POST /control/release`` ``{"name": NAME}`` or ``{"all": true}``;
``GET /control/requests`` lists ``{number, body, state, authorized}`` of every request, state being
received, held, answered, failed or gone; ``GET /control/held`` counts the held ones by name;
``POST /control/reset`` forgets requests and counts and releases all.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from types import TracebackType
from typing import Self

from agent_core.ended import Ended
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.offline import duties, model
from agent_core.testing import strict, wire
from agent_core.testing.http import is_gone, make_http_server
from agent_core.testing.odd import Odd
from agent_core.testing.wire import Received
from agent_core.types import JSON

_MARK = re.compile(
    r"\[\[(?P<judge>judge-)?(?P<kind>hold|pause|fail|drop|delay|empty|reply|think|ends)(?::(?P<value>[^\]]*))?\]\]"
)
_LOOK_AT_CLIENT_SECONDS = 0.5


class ModelServer:
    """The server, in threads of this process. Use it as a context manager."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._http = make_http_server(self, host, port)
        self._lock = threading.Lock()
        self._released: dict[str, threading.Event] = {}
        self._held: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._received: list[Received] = []
        self._script: list[ModelReply | Odd] = []
        self.failure: tuple[int, JSON] = (0, {})
        self.failure_headers: dict[str, str] = {}  # of every failed answer
        self.strict = False  # rejects what any of the large providers rejects (see ``strict.py``)
        self.most_characters = (
            0  # of a request's JSON; a longer one is too long for the model's context; 0: any
        )
        self.forbidden = ""  # a request that contains this word is rejected
        self.rejected: list[str] = []  # why requests were rejected
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
        why, code = strict.problem(path, body) if self.strict else "", ""
        if not why and self.forbidden and self.forbidden in text:
            why, code = "The request was flagged by the content policy.", "content_policy_violation"
        if not why and 0 < self.most_characters < len(text):
            why = strict.too_long(path, len(text) // 4, self.most_characters // 4)
        if not why:
            return {}
        with self._lock:
            self.rejected.append(why)
        return strict.error(path, 400, why, code)

    def receive(self, body: JSON, *, path: str, headers: dict[str, str]) -> Received:
        """Record a request and the marks in its last user message."""
        is_judge = duties.asks_for_verdict(wire.model_call(body).system_prompt)
        marks = _MARK.finditer(wire.last_user_text(body))
        with self._lock:
            received = Received(
                number=len(self._received) + 1,
                body=body,
                authorized="authorization" in headers,
                path=path,
                headers=headers,
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
                if is_gone(client):
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
