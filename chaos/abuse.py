"""Clients that mean harm. Each act is bounded in number and time, and answers what it saw in one line."""

import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from chaos.load import ask
from chaos.server import System

NO_ANSWER = (OSError, http.client.HTTPException)


def _address(system: System) -> tuple[str, int]:
    parts = urlsplit(system.url)
    return parts.hostname or "", parts.port or 0


def _session(system: System, key: str) -> str:
    """A session of mallory's own."""
    ask(system, system.mallory, "POST", "/api/agents/", {"name": "mallory"})
    ask(system, system.mallory, "POST", "/api/sessions/", {"agent": "mallory", "key": f"web:{key}"})
    _, text = ask(system, system.mallory, "GET", f"/api/sessions/?key=web:{key}")
    return str(json.loads(text)["results"][0]["id"])


def a_list_of_half_a_million(system: System) -> str:
    """PATCH of a task state with more items than anybody means."""
    session = _session(system, "memory")
    path, body = f"/api/sessions/{session}/memory/", {"open_loops": [1] * 500_000}
    seen = Counter(ask(system, system.mallory, "PATCH", path, body)[0] for _ in range(4))
    return f"answers {dict(seen)}"


def bodies_that_nobody_reads(system: System) -> str:
    """50 MB to addresses that need no token."""
    seen: Counter[str] = Counter()
    for path in ("/healthz", "/admin/login/", "/"):
        connection = http.client.HTTPConnection(*_address(system), timeout=20)
        try:
            connection.request("POST", path, b"x" * 50_000_000)
            seen[str(connection.getresponse().status)] += 1
        except NO_ANSWER as error:
            seen[type(error).__name__] += 1
        finally:
            connection.close()
    return f"answers {dict(seen)}"


def _held(opened: ExitStack, system: System, heads: list[bytes]) -> list[socket.socket]:
    """A connection for each of these beginnings of a request, as far as the server takes them."""
    held = []
    for head in heads:
        with suppress(OSError):
            one = opened.enter_context(socket.create_connection(_address(system), timeout=5))
            one.sendall(head)
            held.append(one)
    return held


def sockets_that_say_nothing(system: System, count: int = 300, seconds: float = 15.0) -> str:
    """Connections without a request, and with half of one."""
    half = b"POST /api/agents/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    with ExitStack() as opened:
        held = _held(opened, system, [b"", half] * (count // 2))
        time.sleep(seconds)
    return f"{len(held)} held for {seconds:.0f} s"


def streams_without_end(system: System, count: int = 300, seconds: float = 15.0) -> str:
    """More open streams than a user may have."""
    session = _session(system, "streams")
    head = (
        f"GET /api/sessions/{session}/events/ HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Token {system.mallory}\r\n\r\n"
    )
    seen: Counter[str] = Counter()
    with ExitStack() as opened:
        for one in _held(opened, system, [head.encode()] * count):
            try:
                seen[one.recv(64).split(b" ")[1].decode()] += 1
            except (OSError, IndexError):
                seen["none"] += 1
        time.sleep(seconds)
    return f"answers {dict(seen)}"


def a_flood_of_turns(system: System, sessions: int = 15, each: int = 5) -> str:
    """Slow turns of one user in many sessions."""
    seen: Counter[int] = Counter()
    for number in range(sessions):
        session = _session(system, f"flood-{number}")
        for _ in range(each):
            body = {"content": "think for 3 seconds", "on_busy": "enqueue"}
            seen[ask(system, system.mallory, "POST", f"/api/sessions/{session}/messages/", body)[0]] += 1
    return f"answers {dict(seen)}"


ACTS: tuple[Callable[[System], str], ...] = (
    a_list_of_half_a_million,
    bodies_that_nobody_reads,
    sockets_that_say_nothing,
    streams_without_end,
    a_flood_of_turns,
)
