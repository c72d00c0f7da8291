"""One HTTP request to an address that was looked at, cut off at a deadline whatever the server does.

The name is looked up once, and the connection goes to that very address, with the name in Host and SNI. No redirect
is followed: whoever asks decides.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from urllib.parse import SplitResult, quote

from agent_core.addresses import May, look_up, place

REDIRECTS = frozenset({301, 302, 303, 307, 308})
Trust = Callable[[], ssl.SSLContext]
_SAFE = "/%:=&?~#+!$,;'@()*[]|^"  # stays as it is written in a path or a query


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of whom; `parts` were checked by `web_address`. Of the answer `most_bytes` are taken."""

    parts: SplitResult
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    most_bytes: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server sent: the head, and as much of the body as is taken. `broken`: it promised more than came."""

    status: int
    headers: Message
    body: bytes
    cut: bool
    broken: bool


def ask(request: Request, may: May, deadline: float, trust: Trust) -> Answer:
    """The answer, all of it by `deadline` (of time.monotonic).

    NoAddress, ssl.SSLError, OSError (TimeoutError among them), http.client.HTTPException.
    """
    host, port = place(request.parts)
    addresses = look_up(host, port, may, deadline - time.monotonic())
    with _connected(addresses, port, deadline) as plain:
        return _asked(plain, request, host, deadline, trust)


def _connected(addresses: list[str], port: int, deadline: float) -> socket.socket:
    """A connection to the first of them that answers."""
    failed: OSError = OSError("no address")
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            return socket.create_connection((address, port), timeout=left)
        except OSError as error:
            failed = error
    raise failed


def _asked(plain: socket.socket, request: Request, host: str, deadline: float, trust: Trust) -> Answer:
    """Over this connection. A server that sends byte by byte is cut off at the deadline."""
    link = plain
    if request.parts.scheme == "https":
        # the handshake comes later, when the watch is set
        link = trust().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    watch = threading.Timer(max(0.01, deadline - time.monotonic()), _cut_off, [link])
    watch.daemon = True
    watch.start()
    with link:
        try:
            if isinstance(link, ssl.SSLSocket):
                link.do_handshake()
            answer = _spoken(link, request, host)
        finally:
            watch.cancel()
    if time.monotonic() >= deadline:
        raise TimeoutError  # what came before the cut looks like a whole body where no length was told
    return answer


def _cut_off(link: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)  # also beneath TLS, whose own state is the reader's


def _spoken(link: socket.socket, request: Request, host: str) -> Answer:
    talk = http.client.HTTPConnection(host, timeout=link.gettimeout())
    talk.sock = link
    parts = request.parts
    path = quote(parts.path or "/", safe=_SAFE)
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    name = f"[{host}]" if ":" in host else host
    talk.putrequest(request.method, path + query, skip_host=True, skip_accept_encoding=True)
    talk.putheader("Host", name if parts.port is None else f"{name}:{parts.port}")
    for header, value in request.headers:
        talk.putheader(header, value)
    if request.body is not None:
        talk.putheader("Content-Length", str(len(request.body)))
    talk.putheader("Connection", "close")
    talk.endheaders(request.body)
    with talk.getresponse() as response:
        body = b"" if response.status in REDIRECTS else response.read(request.most_bytes + 1)
        return Answer(
            status=response.status,
            headers=response.headers,
            body=body[: request.most_bytes],
            cut=len(body) > request.most_bytes,
            broken=bool(response.length)
            and len(body) <= request.most_bytes
            and response.status not in REDIRECTS,
        )
