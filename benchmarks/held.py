"""The latency of requests to a web process without open streams and with thousands of them.

The streams belong to many users and sessions and receive nothing. Requests are sent one at a time, before, while and
after the streams are open.
"""

from __future__ import annotations

import http.client
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, fleet
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

STREAMS_PER_USER = 50
AT_ONCE = 8
UNLIMITED = {"RONDO_THROTTLE": "0"}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Measurements of one series of requests."""

    latencies: list[float]  # milliseconds
    threads: int
    memory: float  # MiB


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure without streams, with streams, and without streams again."""
    agents = [data.person(MODEL) for _ in range(max(sizes.held // STREAMS_PER_USER, 1))]
    rooms = [(agent, room) for agent in agents for room in data.sessions(agent, sizes.held // len(agents))]
    token = data.token(data.person(MODEL))
    with fleet.web(servers.folder, **UNLIMITED) as port:
        pid = pid_of(port)
        _measure_requests(port, pid, token, sizes.asked)  # warm-up
        before = _measure_requests(port, pid, token, sizes.asked)
        began = time.monotonic()
        with _streams(port, [(data.token(agent), room) for agent, room in rooms]) as count:
            say(f"{count} streams opened in {time.monotonic() - began:.0f} s")
            meanwhile = _measure_requests(port, pid, token, sizes.asked)
        after = _measure_requests(port, pid, token, sizes.asked)
    return _figures(count, [*before.latencies, *after.latencies], before, meanwhile)


def _figures(count: int, alone: list[float], before: Sample, meanwhile: Sample) -> list[Figure]:
    beside, with_none = statistics.median(meanwhile.latencies), statistics.median(alone)
    tail = [statistics.quantiles(each, n=20)[-1] for each in (meanwhile.latencies, alone)]
    note = f"{beside:.1f} ms to {with_none:.1f} ms, medians; p95 {tail[0]:.1f} ms to {tail[1]:.1f} ms"
    about = f"{before.threads} before, {meanwhile.threads} meanwhile"
    memory = max(meanwhile.memory - before.memory, 0) * 1024 / count
    return [
        Figure(
            name=f"request beside {count:,} open streams to none",
            value=beside / with_none,
            at_most=1.2,
            note=note,
        ),
        Figure(
            name=f"threads for {count:,} open streams",
            value=max(meanwhile.threads - before.threads, 0),
            at_most=16,
            count=True,
            note=about,
        ),
        Figure(name="memory per open stream", value=memory, unit="KiB"),
    ]


@contextmanager
def _streams(port: int, wanted: list[tuple[str, Any]]) -> Iterator[int]:
    """Open all streams; yields their number."""
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        for plug in pool.map(lambda each: _open_stream(port, *each), wanted):
            stack.enter_context(plug)
        yield len(wanted)


def _open_stream(port: int, token: str, room: Any) -> socket.socket:
    plug = socket.create_connection(("127.0.0.1", port), timeout=60)
    request = f"GET /api/sessions/{room.pk}/events/ HTTP/1.1\r\nHost: localhost\r\n"
    plug.sendall(f"{request}Authorization: Token {token}\r\n\r\n".encode())
    said = b""
    while b"\nid: " not in said:
        piece = plug.recv(4096)
        if not piece or (said + piece).startswith(b"HTTP/1.1 503"):
            plug.close()
            time.sleep(1)  # shorter than its Retry-After
            return _open_stream(port, token, room)
        said += piece
    return plug


def _measure_requests(port: int, pid: int, token: str, count: int) -> Sample:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    latencies = []
    for _ in range(count):
        began = time.perf_counter()
        connection.request("GET", "/api/agents/", headers={"Authorization": f"Token {token}"})
        answer = connection.getresponse()
        answer.read()
        latencies.append((time.perf_counter() - began) * 1000)
        if answer.status != 200:
            raise RuntimeError(f"the API answered {answer.status}")
    connection.close()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Sample(
        latencies=latencies, threads=int(status["Threads"]), memory=int(status["VmRSS"].split()[0]) / 1024
    )


def pid_of(port: int) -> int:
    """The process id of the web process that listens on the port. RuntimeError."""
    command = f"config.web\0--port\0{port}\0"
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        if command in each.read_text(errors="replace"):
            return int(each.parent.name)
    raise RuntimeError("cannot find the web process in /proc")
