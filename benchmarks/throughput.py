"""Turns per second with an instant model, compared to no-op Celery tasks on the same broker and workers.

The turns are those of messages, and those of automations with as many due in each session; of one user with one agent,
and of 20 users with an agent each. With several numbers of worker processes (`--workers 1,2,4`) only messages of one
user are compared, and the workers start anew for each round.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import data, drain, fleet
from benchmarks.cost import median_ratio
from benchmarks.fleet import Worker
from benchmarks.plugin import MODEL
from benchmarks.processor import processor_seconds
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET = 0.33
TARGET_AUTOMATIONS = 0.8
TARGET_TWO_WORKERS = 1.6
LEAST_CORES = 4  # for that target: PostgreSQL and the broker need some, too
NOOP, CHAT, AUTOMATION = "no-op tasks", "turns, instant model", "automations' turns"
MANY = " of 20 users"


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Alternate all for `rounds` rounds, after a warm-up."""
    if len(sizes.workers) > 1:
        return _compare_workers(servers, sizes, say)
    agent, [workers] = data.person(MODEL), sizes.workers
    rates: dict[str, list[float]] = defaultdict(list)
    costs: dict[str, list[list[float]]] = defaultdict(list)
    with fleet.workers(servers.folder, workers, sizes.concurrency) as processes:
        for number in range(sizes.rounds + 1):
            # the first round warms up
            each, count = (sizes.messages, sizes.sessions) if number else (2, min(sizes.sessions, 20))
            for kind, measure in _kinds(processes, agent, count, each).items():
                before: list[float] = []
                rate = measure(partial(_note_processor_seconds, before, servers, processes))
                after = _processor_seconds(servers, processes)
                spent = [
                    (end - start) * 1000 / count / each for start, end in zip(before, after, strict=True)
                ]
                if number:
                    rates[kind].append(rate)
                    costs[kind].append(spent)
            if number:
                say(
                    f"round {number}: "
                    + ", ".join(f"{found[-1]:.0f} {kind}/s" for kind, found in rates.items())
                )
    return [*_rates(rates, sizes), *_costs(costs)]


def _kinds(
    processes: list[Worker], agent: Any, count: int, each: int
) -> dict[str, Callable[[drain.Filled], float]]:
    def alone() -> list[Any]:
        return data.sessions(agent, count)

    def many() -> list[Any]:
        return data.sessions_of_users(MODEL, count)

    return {
        NOOP: lambda filled: drain.noops(processes, count * each, filled),
        CHAT: lambda filled: drain.chats(processes, alone(), each, filled),
        AUTOMATION: lambda filled: drain.automations(processes, alone(), each, filled),
        CHAT + MANY: lambda filled: drain.chats(processes, many(), each, filled),
        AUTOMATION + MANY: lambda filled: drain.automations(processes, many(), each, filled),
    }


def _rates(rates: dict[str, list[float]], sizes: Sizes) -> list[Figure]:
    notes = {
        NOOP: f"-P threads -c {sizes.concurrency}, {sizes.workers[0]} worker(s); acknowledged, as hints are not",
        CHAT: f"{sizes.sessions} sessions, {sizes.messages} messages each",
        AUTOMATION: f"{sizes.sessions} sessions, {sizes.messages} automations due in each",
    }
    pairs = {
        "turns to no-op tasks": (CHAT, NOOP, TARGET),
        "automations' turns to chat turns": (AUTOMATION, CHAT, TARGET_AUTOMATIONS),
        f"turns{MANY} to no-op tasks": (CHAT + MANY, NOOP, TARGET),
        f"automations' turns{MANY} to chat turns": (AUTOMATION + MANY, CHAT + MANY, TARGET_AUTOMATIONS),
    }
    return [
        *(
            Figure(name=kind, value=statistics.median(found), unit="/s", note=notes.get(kind, ""))
            for kind, found in rates.items()
        ),
        *(
            Figure(name=name, value=median_ratio(rates[one], rates[other]), at_least=target)
            for name, (one, other, target) in pairs.items()
        ),
    ]


def _costs(costs: dict[str, list[list[float]]]) -> list[Figure]:
    return [
        Figure(name=f"processor time per {what}, {name}", value=statistics.median(values), unit="ms")
        for kind, what in (
            (CHAT, "turn"),
            (AUTOMATION, "automation's turn"),
            (CHAT + MANY, f"turn{MANY}"),
            (AUTOMATION + MANY, f"automation's turn{MANY}"),
        )
        for name, values in zip(("workers", "PostgreSQL"), zip(*costs[kind], strict=True), strict=False)
    ]


def _note_processor_seconds(found: list[float], servers: Servers, processes: list[Worker]) -> None:
    found += _processor_seconds(servers, processes)


def _processor_seconds(servers: Servers, processes: list[Worker]) -> list[float]:
    """Of the workers and, if it is the embedded one, of PostgreSQL."""
    workers = sum(processor_seconds(process.child.pid) for process in processes)
    return [workers] + ([processor_seconds(servers.postgres_pid)] if servers.postgres_pid else [])


def _compare_workers(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    agent = data.person(MODEL)
    rates: dict[int, list[float]] = defaultdict(list)
    for number in range(1, sizes.rounds + 1):
        for workers in sizes.workers:
            with fleet.workers(servers.folder, workers, sizes.concurrency) as processes:
                drain.chats(processes, data.sessions(agent, min(sizes.sessions, 20)), 2)  # warm-up
                rates[workers].append(
                    drain.chats(processes, data.sessions(agent, sizes.sessions), sizes.messages)
                )
            say(f"round {number}, {workers} worker(s): {rates[workers][-1]:.0f} turns/s")
    first, *more = sizes.workers
    target = TARGET_TWO_WORKERS if (os.cpu_count() or 1) >= LEAST_CORES else None
    return [
        *(
            Figure(name=f"turns, {workers} worker(s)", value=statistics.median(rates[workers]), unit="/s")
            for workers in sizes.workers
        ),
        *(
            Figure(
                name=f"turns, {workers} workers to {first}",
                value=median_ratio(rates[workers], rates[first]),
                at_least=target if (first, workers) == (1, 2) else None,
            )
            for workers in more
        ),
    ]
