"""A client connection of the web process, with limits on request heads, slow readers and the number of connections.

uvicorn closes a connection that is idle after a response, but keeps one that never sends a whole request, or does not
read its response, for as long as the client likes.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from django.conf import settings
from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_core.text.formats import status_phrase
from interfaces.http.client_address import site_of
from interfaces.http.errors.codes import PROBLEM, problem_body
from interfaces.http.server.open_files import free_connections
from interfaces.http.server.request_id import HEADER, new_id

HEAD_SECONDS = 10.0  # for a whole request head, from the connection's start or the head's first byte
LONGEST_HEAD = 16 * 1024  # bytes
MOST_PIECES = (
    16_384  # chunks or packets of one body: each costs the event loop microseconds, whatever its size
)
STALLED_SECONDS = 30.0  # that a client may leave a response unread, or not acknowledge packets


@dataclass(frozen=True)
class Refusal:
    """A response that no application makes: a problem with a request id, after which the connection is closed."""

    status: HTTPStatus
    code: str
    detail: str

    def response(self) -> bytes:
        """The whole response."""
        body = json.dumps(problem_body(self.status.value, self.code, self.detail)).encode()
        head = [
            f"HTTP/1.1 {self.status.value} {status_phrase(self.status)}",
            f"Content-Type: {PROBLEM}",
            f"Content-Length: {len(body)}",
            f"{HEADER}: {new_id()}",
            *(["Retry-After: 5"] if self.status is HTTPStatus.SERVICE_UNAVAILABLE else []),
            "Connection: close",
        ]
        return "\r\n".join((*head, "", "")).encode() + body


def _bad(detail: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "bad_request", detail)


TOO_MANY = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "The server has too many connections.")
TOO_LONG = _bad(f"A request head may have at most {LONGEST_HEAD} bytes.")
TOO_MANY_PIECES = _bad(f"A request body may have at most {MOST_PIECES} chunks.")
INVALID = _bad("The request is not valid HTTP/1.1.")
OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_SECONDS * 1000)),
)


class _LimitedParser(h11.Connection):
    """h11's parser, which stops at a request that is too expensive; `refusal` is then the response to it.

    h11 limits a head only while it is incomplete, and does not limit the number of chunks.
    """

    refusal: Refusal | None = None
    _pieces = 0

    def next_event(self) -> Any:
        """The next event; NEED_DATA once the request is refused."""
        event = h11.NEED_DATA if self.refusal else super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = 0
            self.refusal = TOO_LONG if _length(event) > LONGEST_HEAD else None
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self.refusal = TOO_MANY_PIECES if self._pieces > MOST_PIECES else None
        return h11.NEED_DATA if self.refusal else event


class ClientConnection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with limits."""

    conn: _LimitedParser

    _open: ClassVar[Counter[str]] = Counter()  # connections by the network of their client
    _site = ""
    _refused = False
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _LimitedParser(h11.SERVER, LONGEST_HEAD)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or answer 503 if there are too many."""
        super().connection_made(transport)
        self._site = site_of(self.client[0]) if self.client else ""
        self._open[self._site] += 1
        if self._is_one_too_many():
            self._refused = True
            transport.write(TOO_MANY.response())
            transport.close()
            return
        _detect_dead_peer(transport)
        self._time_head()

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > min(settings.RONDO_CONNECTIONS, free_connections()):
            return True
        if self._open[self._site] <= settings.RONDO_CONNECTIONS_PER_ADDRESS:
            return False
        return self.client is not None and self.client[0] not in _TrustedHosts(
            self.config.forwarded_allow_ips or "127.0.0.1"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection as closed and cancel its timers."""
        self._open[self._site] -= 1
        if not self._open[self._site]:
            del self._open[self._site]
        self._cancel_head_timer()
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; a head that has begun must be complete in time."""
        if self._refused:
            return
        super().data_received(data)
        self._refuse()
        self._time_head()

    def on_response_complete(self) -> None:
        """Start with the next request, which may have arrived already."""
        super().on_response_complete()
        self._refuse()
        if self._is_in_request():
            self._cancel_head_timer()

    def pause_writing(self) -> None:
        """The client has stopped reading: close the connection unless it reads on in time."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._cancel_stall_timer()
        super().resume_writing()

    def _refuse(self) -> None:
        """Answer a refused request, unless its response has begun, and close the connection."""
        if not self.conn.refusal or self.transport.is_closing():
            return
        self._close_with(self.conn.refusal)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature is uvicorn's
        """Refuse what is not HTTP, with a request id like all else."""
        self._close_with(INVALID)

    def _close_with(self, refusal: Refusal) -> None:
        if not self._is_in_request() or not self.cycle.response_started:
            self.transport.write(refusal.response())
        self.transport.close()

    def _is_in_request(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _time_head(self) -> None:
        if self._is_in_request() or self.transport.is_closing():
            self._cancel_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_unless_in_request)

    def _close_unless_in_request(self) -> None:
        self._head_timer = None
        if not self._is_in_request():
            self.transport.abort()

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def _length(head: h11.Request) -> int:
    return len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)


def _detect_dead_peer(transport: Any) -> None:
    """Have the kernel close a connection whose client or network died, or that keeps its TCP window closed."""
    wire = transport.get_extra_info("socket")
    if wire is None or wire.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    for level, option, value in OPTIONS:
        with suppress(OSError):
            wire.setsockopt(level, option, value)
