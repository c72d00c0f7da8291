"""The time from the commit of an event until many open windows have received it by HTTP from one web process.

First all windows show one session; then each shows a different session, and the event is for all windows of the agent.
Events are spaced so that the publisher, which sends at most ten times a second, is idle before each.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks import data, fleet
from benchmarks.cost import p99
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

PATIENCE = 30.0  # seconds
OPEN_AT_ONCE = 20
REST = 0.25  # seconds between two events


@dataclass(kw_only=True)
class Windows:
    """Open streams, and the times at which each event arrived."""

    port: int
    token: str
    came: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    opened: int = 0

    async def read(self, session_id: uuid.UUID, gate: asyncio.Semaphore) -> None:
        """Read one stream until the task is cancelled."""
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            request = f"GET /api/sessions/{session_id}/events/ HTTP/1.1\r\nHost: localhost\r\n"
            writer.write(f"{request}Authorization: Token {self.token}\r\n\r\n".encode())
            await reader.readuntil(b"id: ")
            self.opened += 1
        try:
            async for line in reader:
                if line.startswith(b"data: "):
                    now = time.monotonic()
                    self.came[json.loads(line[6:])["content"].get("event_id", "")].append(now)
        finally:
            writer.close()


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure both cases, one event at a time."""
    agent = data.person(MODEL)
    targets = data.sessions(agent, sizes.subscribers)
    figures: list[Figure] = []
    with fleet.web(servers.folder, RONDO_STREAMS_PER_USER=str(sizes.subscribers)) as port:
        windows = {"one session": targets[:1] * sizes.subscribers, "a session each": targets}
        for how, shown in windows.items():
            taken = asyncio.run(_measure(port, data.token(agent), shown, sizes.marks))
            say(f"{how}: median {statistics.median(taken):.0f} ms")
            figures += _figures(how, taken, sizes)
    return figures


def _figures(how: str, taken: list[float], sizes: Sizes) -> list[Figure]:
    name = f"event to {sizes.subscribers} windows, {how}"
    return [
        Figure(name=name, value=statistics.median(taken), unit="ms", note="median of all windows and events"),
        Figure(name=f"{name}, p99", value=p99(taken), unit="ms", note=f"the latest {max(taken):.0f} ms"),
    ]


async def _measure(port: int, token: str, shown: list[Any], marks: int) -> list[float]:
    """Milliseconds from the commit until arrival, for each event and window."""
    windows, gate = Windows(port=port, token=token), asyncio.Semaphore(OPEN_AT_ONCE)
    readers = [asyncio.create_task(windows.read(session.pk, gate)) for session in shown]
    taken: list[float] = []
    try:
        await _wait_until(lambda: windows.opened == len(shown), readers)
        for number in range(marks + 1):
            await asyncio.sleep(REST)
            event_id = uuid.uuid4()
            committed = await asyncio.to_thread(_deposit, shown[0].pk, event_id)
            came = windows.came[str(event_id)]
            await _wait_until(lambda came=came: len(came) == len(shown), readers)  # type: ignore[misc]
            if number:  # the first warms up
                taken += [(each - committed) * 1000 for each in came]
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return taken


async def _wait_until(holds: Callable[[], bool], readers: list[asyncio.Task[None]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        for reader in readers:
            if reader.done():
                raise RuntimeError(f"a stream broke: {reader.exception()!r}")
        if time.monotonic() > deadline:
            raise TimeoutError("not all windows received the event")
        await asyncio.sleep(0.005)


def _deposit(session_id: uuid.UUID, event_id: uuid.UUID) -> float:
    """Deposit an update; returns the time of its commit."""
    from django.db import connection

    from sessions_app.mailbox.deposit import NewUpdate, deposit

    try:
        deposit(session_id, NewUpdate(event_type="job_completed", summary="News.", event_id=event_id))
        return time.monotonic()
    finally:
        connection.close()
