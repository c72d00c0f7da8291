"""What this machine does at best: the floor beside which figures may be read on any machine.

`no-op`: Celery tasks that do nothing, in one worker process. `commit`: committed UPDATEs of a row over one connection.
`commit of 16`: the same over 16 connections, each with a row of its own. All a second, medians of three rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import psycopg

from benchmarks import drain, fleet
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

NOOP, COMMIT, COMMIT_OF_16 = "no-op", "commit", "commit of 16"
CONNECTIONS = 16
ROUNDS = 3
_TABLE = "CREATE TABLE IF NOT EXISTS bench_floor AS SELECT id, 0 AS n FROM generate_series(1, %s) AS id"
_UPDATE = "UPDATE bench_floor SET n = n + 1 WHERE id = %s"


def measure(servers: Servers, sizes: Sizes) -> dict[str, float]:
    """Alternate the three for some rounds, after a warm-up."""
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(_TABLE.replace("%s", str(CONNECTIONS)))
    found: dict[str, list[float]] = defaultdict(list)
    with fleet.worker(servers.folder, "floor", sizes.concurrency) as worker:
        drain.noops([worker], sizes.noops)
        kinds: dict[str, Callable[[], float]] = {
            NOOP: lambda: drain.noops([worker], sizes.noops),
            COMMIT: lambda: _commits(servers.database_url, 1, sizes.floor_seconds),
            COMMIT_OF_16: lambda: _commits(servers.database_url, CONNECTIONS, sizes.floor_seconds),
        }
        for _ in range(ROUNDS):
            for name, rate in kinds.items():
                found[name].append(rate())
    return {name: statistics.median(rates) for name, rates in found.items()}


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The geometric mean of the floors before and after the benchmarks; of one alone, that one."""
    return {name: math.sqrt(rate * after.get(name, rate)) for name, rate in before.items()}


def drift(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """By how much, as a part, the floor changed most: over a tenth, the machine had other work."""
    rates = [(rate, after[name]) for name, rate in before.items() if name in after]
    return max((max(pair) / min(pair) - 1 for pair in rates), default=0.0)


def _commits(url: str, connections: int, seconds: float) -> float:
    """Commits per second of all connections together."""

    def some(row: int) -> float:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_UPDATE, [row], prepare=True)
            began, count = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                connection.execute(_UPDATE, [row], prepare=True)
                count += 1
            return count / (time.monotonic() - began)

    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(some, range(1, connections + 1)))
