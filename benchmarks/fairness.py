"""Fairness: how long messages wait for their commit beside sessions with long queues.

Messages, ten a second, go to idle sessions of other users: beside nothing, beside one session with 1,000 queued turns,
and beside as many sessions with 100 queued turns each as the worker has threads.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import data, drain, fleet
from benchmarks.cost import MILLISECONDS, median_ratio
from benchmarks.latency import send_at, wait_for
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET = 1.5  # beside one session to none
PROBE_EVERY = 0.1  # seconds


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Alternate the cases, with new workers for each round."""
    one = f"a session with {sizes.queued:,} queued turns"
    full = f"{sizes.concurrency} sessions with {sizes.queued_each:,} queued turns"
    cases = {"": (0, 0), one: (1, sizes.queued), full: (sizes.concurrency, sizes.queued_each)}
    found: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(1, sizes.rounds + 1):
        with _worker(servers, sizes):
            for case, (sessions, each) in cases.items():
                found[case].append(_time_probes(sessions, each, sizes.probes))
        times = ", ".join(f"{times[-1]:.1f} ms {case or 'alone'}" for case, times in found.items())
        say(f"round {number}: {times}")
    return [
        _ratio(f"message beside {one} to none", found[one], found[""], TARGET),
        _ratio(f"message beside {full} to none", found[full], found[""]),
    ]


def _ratio(name: str, times: list[float], others: list[float], target: float | None = None) -> Figure:
    note = f"{statistics.median(times):.1f} ms to {statistics.median(others):.1f} ms from receipt to commit"
    return Figure(name=name, value=median_ratio(times, others), at_most=target, note=note)


@contextmanager
def _worker(servers: Servers, sizes: Sizes) -> Iterator[None]:
    with fleet.worker(servers.folder, "fairness", sizes.concurrency) as worker:
        drain.chats([worker], data.sessions_of_users(MODEL, 20), 2)  # warm-up
        yield


def _time_probes(count: int, each: int, probes: int) -> float:
    """Median milliseconds of messages, one at a time, while `count` sessions with `each` queued turns are at work."""
    from django.db.models.functions import Now

    from sessions_app.hints import Hint, send
    from sessions_app.models import Lane, Turn, TurnState

    busy, idle = data.sessions_of_users(MODEL, count) if count else [], data.sessions_of_users(MODEL, probes)
    for session in busy:
        data.queue_rows(session, each)
    send(Hint(session_id=session.pk, lane=Lane.PEOPLE) for session in busy)
    ended = Turn.objects.filter(state=TurnState.SUCCEEDED)
    fleet.until(lambda: all(ended.filter(session=session).exists() for session in busy), "all have begun")
    send_at(idle, [PROBE_EVERY * n for n in range(probes)], "Probe")
    wait_for(idle, probes)
    waiting = Turn.objects.filter(session__in=busy, state=TurnState.QUEUED)
    if busy and not waiting.exists():
        raise RuntimeError(f"the queues of {each} turns ended before the {probes} messages did")
    waiting.update(state=TurnState.CANCELLED, finished_at=Now())
    running = Turn.objects.filter(session__in=busy, state=TurnState.RUNNING)
    fleet.until(lambda: not running.exists(), "the last turns have ended")
    times: Any = ended.filter(session__in=idle).values_list("queued_at", "finished_at")
    return float(statistics.median((end - begin).total_seconds() * MILLISECONDS for begin, end in times))
