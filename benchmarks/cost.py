"""The cost of a block of code: wall time, processor time, and time spent waiting for PostgreSQL."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any
from unittest.mock import patch

MILLISECONDS = 1000.0


@dataclass(kw_only=True)
class Cost:
    """Milliseconds. `cpu`: all threads of this process. `database`: in statements and COMMIT; `commit`: in COMMIT."""

    wall: float = 0.0
    cpu: float = 0.0
    database: float = 0.0
    commit: float = 0.0

    def over(self, count: int) -> Cost:
        """The cost of one of `count` equal parts."""
        return Cost(**{name: value / count for name, value in asdict(self).items()})


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure the block; the result is complete after it. `database`: of this thread's connection only."""
    from django.db import connection

    cost = Cost()

    def timed(execute: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return execute(*args)
        finally:
            cost.database += (time.perf_counter() - start) * MILLISECONDS

    def committed() -> None:
        before = cost.database
        timed(commit)
        cost.commit += cost.database - before

    # Django has no hook for COMMIT, in which PostgreSQL checks foreign keys
    commit = connection._commit  # type: ignore[attr-defined]  # noqa: SLF001
    wall, cpu = time.perf_counter(), time.process_time()
    with connection.execute_wrapper(timed), patch.object(connection, "_commit", committed):
        yield cost
    cost.wall = (time.perf_counter() - wall) * MILLISECONDS
    cost.cpu = (time.process_time() - cpu) * MILLISECONDS


def percentiles(values: Sequence[float]) -> list[float]:
    """The 1st to 99th percentile."""
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, len(ordered) * part // 100)] for part in range(1, 100)]


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return percentiles(values)[-1]


def median_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of the ratios of one to the other, round by round."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each field."""
    return Cost(
        **{each.name: statistics.median(getattr(cost, each.name) for cost in costs) for each in fields(Cost)}
    )
