"""Makes one HTTP request to a checked address, within a deadline that holds whatever the server does.

The host name is resolved once. The connection goes to the checked address, with the name in Host and SNI. Redirects
are not followed.
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

from agent_core.addresses import AddressCheck, host_and_port, resolve_host, trust

REDIRECTS = frozenset({301, 302, 303, 307, 308})
Trust = Callable[[], ssl.SSLContext]
_SAFE = "/%:=&?~#+!$,;'@()*[]|^"  # not escaped in a path or a query


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request. `parts` come from `parse_web_address`. Of the response body `most_bytes` are read.

    `user`: whose share of the name look-ups it uses; empty: the server's own.
    """

    parts: SplitResult
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    most_bytes: int
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """A response. `cut`: its body was longer than `most_bytes`. `broken`: it was shorter than announced."""

    status: int
    headers: Message
    body: bytes
    cut: bool
    broken: bool


def send_request(
    request: HttpRequest, is_allowed: AddressCheck, deadline: float, trust: Trust = trust
) -> HttpAnswer:
    """Return the complete response by `deadline` (of time.monotonic).

    Raises NoAddress, ssl.SSLError, OSError (such as TimeoutError) and http.client.HTTPException.
    """
    host, port = host_and_port(request.parts)
    addresses = resolve_host(host, is_allowed, deadline - time.monotonic(), request.user)
    with _connect(addresses, port, deadline) as plain:
        return _exchange(plain, request, host, deadline, trust)


def _connect(addresses: list[str], port: int, deadline: float) -> socket.socket:
    """Connect to the first address that answers."""
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


def _exchange(
    plain: socket.socket, request: HttpRequest, host: str, deadline: float, trust: Trust
) -> HttpAnswer:
    """Send the request and read the response. At the deadline the connection is shut down, however slow it is."""
    link = plain
    if request.parts.scheme == "https":
        # the handshake follows below, when the timer runs
        link = trust().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    timer = threading.Timer(max(0.01, deadline - time.monotonic()), _shut_down, [link])
    timer.daemon = True
    timer.start()
    with link:
        try:
            if isinstance(link, ssl.SSLSocket):
                link.do_handshake()
            answer = _send_and_read(link, request, host)
        finally:
            timer.cancel()
    if time.monotonic() >= deadline:
        raise TimeoutError  # without a Content-Length, a cut body looks complete
    return answer


def _shut_down(link: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)  # not by TLS, which the reading thread uses


def _send_and_read(link: socket.socket, request: HttpRequest, host: str) -> HttpAnswer:
    connection = http.client.HTTPConnection(host, timeout=link.gettimeout())
    connection.sock = link
    parts = request.parts
    path = quote(parts.path or "/", safe=_SAFE)
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    name = f"[{host}]" if ":" in host else host
    name = name if parts.port is None else f"{name}:{parts.port}"
    headers = {"Host": name, **dict(request.headers), "Connection": "close"}
    connection.request(request.method, path + query, request.body, headers)
    with connection.getresponse() as response:
        body = b"" if response.status in REDIRECTS else response.read(request.most_bytes + 1)
        return HttpAnswer(
            status=response.status,
            headers=response.headers,
            body=body[: request.most_bytes],
            cut=len(body) > request.most_bytes,
            broken=bool(response.length)
            and len(body) <= request.most_bytes
            and response.status not in REDIRECTS,
        )
