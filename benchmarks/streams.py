"""From the commit of an event until all of many open windows have it, over real HTTP from one web process.

Once all windows show one session; once each shows a session of its own, and an event is for all of the agent's.
Nothing else is sent: each event finds the publisher at rest, which sends at most ten times a second.
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
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

PATIENCE = 30.0  # seconds
OPEN_AT_ONCE = 20
REST = 0.25  # seconds between two events


@dataclass(kw_only=True)
class Windows:
    """Open streams, and when each mark came through each of them."""

    port: int
    token: str
    came: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    opened: int = 0

    async def read(self, session_id: uuid.UUID, gate: asyncio.Semaphore) -> None:
        """One window, until it is cancelled."""
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
    """Both ways, one mark after the other."""
    agent = data.person(MODEL)
    targets = data.sessions(agent, sizes.subscribers)
    figures: list[Figure] = []
    with fleet.web(servers.folder) as port:
        windows = {"one session": targets[:1] * sizes.subscribers, "a session each": targets}
        for how, shown in windows.items():
            taken = asyncio.run(_measured(port, _token(agent), shown, sizes.marks))
            say(f"{how}: median {statistics.median(taken):.0f} ms")
            figures += _figures(how, taken, sizes)
    return figures


def _figures(how: str, taken: list[float], sizes: Sizes) -> list[Figure]:
    ordered = sorted(taken)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    name = f"event to {sizes.subscribers} windows, {how}"
    return [
        Figure(name=name, value=statistics.median(taken), unit="ms", note="median of all windows and marks"),
        Figure(name=f"{name}, p99", value=p99, unit="ms", note=f"the latest {ordered[-1]:.0f} ms"),
    ]


def _token(agent: Any) -> str:
    from rest_framework.authtoken.models import Token

    return str(Token.objects.get_or_create(user_id=agent.owner_id)[0].key)


async def _measured(port: int, token: str, shown: list[Any], marks: int) -> list[float]:
    """Milliseconds from the commit until a window had it, for each mark and window."""
    windows, gate = Windows(port=port, token=token), asyncio.Semaphore(OPEN_AT_ONCE)
    readers = [asyncio.create_task(windows.read(session.pk, gate)) for session in shown]
    taken: list[float] = []
    try:
        await _until(lambda: windows.opened == len(shown), readers)
        for number in range(marks + 1):
            await asyncio.sleep(REST)
            event_id = uuid.uuid4()
            committed = await asyncio.to_thread(_deposited, shown[0].pk, event_id)
            came = windows.came[str(event_id)]
            await _until(lambda came=came: len(came) == len(shown), readers)  # type: ignore[misc]
            if number:  # the first warms up
                taken += [(each - committed) * 1000 for each in came]
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return taken


async def _until(holds: Callable[[], bool], readers: list[asyncio.Task[None]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        for reader in readers:
            if reader.done():
                raise RuntimeError(f"a window was lost: {reader.exception()!r}")
        if time.monotonic() > deadline:
            raise TimeoutError("not all windows were told")
        await asyncio.sleep(0.005)


def _deposited(session_id: uuid.UUID, event_id: uuid.UUID) -> float:
    """When it was committed."""
    from django.db import connection

    from sessions_app.mailbox import Mail, deposit

    try:
        deposit(session_id, Mail(event_type="job_completed", summary="News.", event_id=event_id))
        return time.monotonic()
    finally:
        connection.close()
