"""A client connection of the web process, with limits on request heads, slow readers and the number of connections.

uvicorn closes a connection that is idle after a response, but keeps one that never sends a whole request, or does not
read its response, for as long as the client likes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections import Counter
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

import h11
from django.conf import settings
from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_core.text.formats import status_phrase
from interfaces.http.client_address import network_of
from interfaces.http.errors.codes import PROBLEM, code_of, problem_body
from interfaces.http.server.headers import REQUEST_ID, new_id

HEAD_SECONDS = 10.0  # for a whole request head, from the connection's start or the head's first byte
LONGEST_HEAD = 16 * 1024  # bytes
MOST_CHUNKS = 16_384  # of one body: each costs the event loop microseconds, whatever its size
STALLED_SECONDS = 30.0  # that a client may leave a response unread, or not acknowledge packets
SOCKET_OPTIONS = (  # the kernel closes a connection whose client or network died
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_SECONDS * 1000)),
)
OWN_FILES = 64  # open files of the process itself
# with a shorter queue clients wait a second and more to be accepted
SHORTEST_BACKLOG, LONGEST_BACKLOG = 32, 2048
BACKLOG_SHARE = 16  # the backlog is this fraction of the open files that the process may have
ACCEPTS = 4  # backlogs that the event loop accepts until a connection can be refused
UNLIMITED = 1_000_000

Refusal = tuple[int, str]  # status and text
TOO_MANY: Refusal = (503, "The server has too many connections.")
TOO_LONG: Refusal = (400, f"A request head may have at most {LONGEST_HEAD} bytes.")
TOO_MANY_CHUNKS: Refusal = (400, f"A request body may have at most {MOST_CHUNKS} chunks.")
INVALID: Refusal = (400, "The request is not valid HTTP/1.1.")


def backlog() -> int:
    """How many connections may wait to be accepted; the event loop accepts all of them in one step."""
    return max(SHORTEST_BACKLOG, min(LONGEST_BACKLOG, _most_files() // BACKLOG_SHARE))


@cache
def most_connections() -> int:
    """RONDO_CONNECTIONS, or less: the process must have files left to open, to answer 503 at least."""
    database: Any = settings.DATABASES["default"]
    own: int = OWN_FILES + database["OPTIONS"]["pool"]["max_size"] + ACCEPTS * backlog()
    most: int = min(settings.RONDO_CONNECTIONS, max(1, _most_files() - own))
    return most


def _most_files() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _response(status: int, text: str) -> bytes:
    """A response that no application makes: a problem with a request id, which ends the connection."""
    body = json.dumps(problem_body(status, code_of(status), text)).encode()
    head = [
        f"HTTP/1.1 {status} {status_phrase(status)}",
        f"Content-Type: {PROBLEM}",
        f"Content-Length: {len(body)}",
        f"{REQUEST_ID}: {new_id()}",
        *(["Retry-After: 5"] if status == 503 else []),
        "Connection: close",
    ]
    return "\r\n".join((*head, "", "")).encode() + body


class _LimitedParser(h11.Connection):
    """h11's parser, which stops at a request that is too expensive; `refusal` is then the response to it.

    h11 limits a head only while it is incomplete, and does not limit the number of chunks.
    """

    refusal: Refusal | None = None
    _chunks = 0

    def next_event(self) -> Any:
        """The next event; NEED_DATA once the request is refused."""
        event = h11.NEED_DATA if self.refusal else super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = 0
            self.refusal = TOO_LONG if _length(event) > LONGEST_HEAD else None
        elif isinstance(event, h11.Data):
            self._chunks += 1
            self.refusal = TOO_MANY_CHUNKS if self._chunks > MOST_CHUNKS else None
        return h11.NEED_DATA if self.refusal else event


def _length(head: h11.Request) -> int:
    return len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)


class ClientConnection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with limits."""

    conn: _LimitedParser

    _open: ClassVar[Counter[str]] = Counter()  # connections by the network of their client
    _network = ""
    _refused = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _LimitedParser(h11.SERVER, LONGEST_HEAD)
        self._timers: dict[str, asyncio.TimerHandle] = {}  # by what the client is slow at

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or answer 503 if there are too many."""
        super().connection_made(transport)
        self._network = network_of(self.client[0]) if self.client else ""
        self._open[self._network] += 1
        if self._is_one_too_many():
            self._refused = True
            self._close_with(TOO_MANY)
            return
        for option in SOCKET_OPTIONS:
            with suppress(OSError):  # a Unix socket has none of TCP
                transport.get_extra_info("socket").setsockopt(*option)
        self._time_head()

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > most_connections():
            return True
        if self._open[self._network] <= settings.RONDO_CONNECTIONS_PER_ADDRESS or self.client is None:
            return False
        return self.client[0] not in _TrustedHosts(self.config.forwarded_allow_ips or "127.0.0.1")

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection as closed."""
        self._open[self._network] -= 1
        if not self._open[self._network]:
            del self._open[self._network]
        for slow_at in tuple(self._timers):
            self._stop_timer(slow_at)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; a head that has begun must be complete in time."""
        if self._refused:
            return
        super().data_received(data)
        self._answer_refusal()
        self._time_head()

    def on_response_complete(self) -> None:
        """Start with the next request, which may have arrived already."""
        super().on_response_complete()
        self._answer_refusal()
        if self._is_in_request():
            self._stop_timer("head")

    def pause_writing(self) -> None:
        """The client has stopped reading: close the connection unless it reads on in time."""
        super().pause_writing()
        self._start_timer("reading", STALLED_SECONDS)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop_timer("reading")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature is uvicorn's
        """Refuse what is not HTTP, with a request id like all else."""
        self._close_with(INVALID)

    def _answer_refusal(self) -> None:
        if self.conn.refusal and not self.transport.is_closing():
            self._close_with(self.conn.refusal)

    def _close_with(self, refusal: Refusal) -> None:
        """Answer, unless a response has begun, and close the connection."""
        if not self._is_in_request() or not self.cycle.response_started:
            self.transport.write(_response(*refusal))
        self.transport.close()

    def _is_in_request(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _time_head(self) -> None:
        if self._is_in_request() or self.transport.is_closing():
            self._stop_timer("head")
        else:
            self._start_timer("head", HEAD_SECONDS)

    def _start_timer(self, slow_at: str, seconds: float) -> None:
        """Abort the connection after so many seconds; a timer that runs already goes on."""
        if slow_at not in self._timers:
            self._timers[slow_at] = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self, slow_at: str) -> None:
        if timer := self._timers.pop(slow_at, None):
            timer.cancel()
