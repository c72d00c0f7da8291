"""How long messages wait at half load until the model is asked.

One worker process; messages are received by this process, as a web process does it, by many users. They arrive at
random times (Poisson) at half of the rate at which the worker empties a queue with one message for each session,
whether or not the earlier ones have been answered.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, drain, fleet
from benchmarks.cost import MILLISECONDS, p99, percentiles
from benchmarks.fleet import Worker
from benchmarks.plugin import ASKED, MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

SENDERS = 4  # threads that receive messages
TARGET_MEDIAN = 25.0  # milliseconds from a message to the first model request


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message that was received: when that began, and when it was committed (monotonic)."""

    text: str
    began: float
    committed: float


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Milliseconds of a message: to receive and commit it, and from then to its claim and to the model's request."""

    received: float
    claimed: float
    asked: float


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure in one worker."""
    asked = servers.folder / "asked"
    with fleet.worker(servers.folder, "latency", sizes.concurrency, **{ASKED: str(asked)}) as worker:
        drain.chats([worker], data.sessions_of_users(MODEL, 20), 2)  # warm-up
        return _at_half_load(worker, asked, sizes, say)


def _at_half_load(worker: Worker, asked: Path, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Alternate full queues, for their rate, and messages at half of it."""
    rates, waits = [], list[Wait]()
    for number in range(1, sizes.rounds + 1):
        rates.append(drain.chats([worker], data.sessions_of_users(MODEL, sizes.sessions), 1))
        sessions = data.sessions_of_users(MODEL, sizes.sessions)
        offsets = _arrivals(rates[-1] / 2, sizes.arrival_seconds, seed=number)
        sent = send_at(sessions, offsets, f"round {number}")
        wait_for(sessions, len(sent))
        waits += _waits(sent, sessions, asked)
        median = statistics.median(wait.asked for wait in waits)
        say(f"round {number}: {len(sent)} messages at {rates[-1] / 2:.0f}/s, median so far {median:.1f} ms")
    name, half = "message to first model request", statistics.median(rates) / 2
    received, claimed, until = zip(
        *((wait.received, wait.claimed, wait.asked) for wait in waits), strict=True
    )
    before = f"{statistics.median(received):.1f} ms before it to receive"
    parts = f"{before}, {statistics.median(claimed):.1f} ms of it to the claim"
    return [
        Figure(
            name=name,
            value=statistics.median(until),
            unit="ms",
            at_most=TARGET_MEDIAN,
            note=f"median of {len(waits)} messages at {half:.0f}/s, half of a full queue's rate; {parts}",
            shape=tuple(percentiles(until)),
        ),
        Figure(
            name=f"{name}, p99",
            value=p99(until),
            unit="ms",
            note=f"to the claim {p99(claimed):.1f} ms",
        ),
    ]


def _waits(sent: list[Sent], sessions: list[Any], asked: Path) -> list[Wait]:
    from sessions_app.models import Turn

    to_wall = time.time() - time.monotonic()
    rows: Any = Turn.objects.filter(session__in=sessions).values_list("content", "claimed_at")
    claimed = {content: at.timestamp() - to_wall for content, at in rows}
    at = _first_requests(asked)
    return [
        Wait(
            received=(each.committed - each.began) * MILLISECONDS,
            claimed=(claimed[each.text] - each.committed) * MILLISECONDS,
            asked=(at[each.text] - each.committed) * MILLISECONDS,
        )
        for each in sent
    ]


def wait_for(sessions: list[Any], count: int) -> None:
    """Wait until so many messages of these sessions are answered."""
    fleet.until(lambda: data.count_succeeded(sessions) == count, f"{count} messages are answered")


def _arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Random times from 0 on, at least one, `rate` a second on average."""
    chance = random.Random(seed)
    times = [chance.expovariate(rate)]
    while times[-1] < seconds:
        times.append(times[-1] + chance.expovariate(rate))
    return times


def send_at(sessions: list[Any], offsets: Iterable[float], text: str) -> list[Sent]:
    """Receive a message for each offset in seconds, by the sessions in turn."""
    start = time.monotonic()
    with ThreadPoolExecutor(SENDERS) as pool:
        sent = []
        for number, offset in enumerate(offsets):
            time.sleep(max(0.0, start + offset - time.monotonic()))
            sent.append(pool.submit(_receive, sessions[number % len(sessions)], f"{text}, message {number}"))
        return [each.result() for each in sent]


def _receive(session: Any, text: str) -> Sent:
    from django.db import connection

    from sessions_app.models import OnBusy
    from sessions_app.queue.receive import MessageInput, receive

    began = time.monotonic()
    try:
        receive(session.pk, MessageInput(content=text, on_busy=OnBusy.ENQUEUE))
        return Sent(text=text, began=began, committed=time.monotonic())
    finally:
        connection.close()


def _first_requests(asked: Path) -> dict[str, float]:
    """The time of the first request to the model by the message's text."""
    found: dict[str, float] = {}
    for line in asked.read_text().splitlines():
        at, _, text = line.partition(" ")
        found.setdefault(text, float(at))
    return found
