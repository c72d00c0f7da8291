"""What a stretch of code costs: wall time, processor time of this process, time spent waiting for PostgreSQL."""

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
    """The cost of what is done inside, complete once it is left; `database` is that of this thread's connection."""
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

    # no hook of Django's goes around COMMIT, where PostgreSQL checks the foreign keys
    commit = connection._commit  # type: ignore[attr-defined]  # noqa: SLF001
    wall, cpu = time.perf_counter(), time.process_time()
    with connection.execute_wrapper(timed), patch.object(connection, "_commit", committed):
        yield cost
    cost.wall = (time.perf_counter() - wall) * MILLISECONDS
    cost.cpu = (time.process_time() - cpu) * MILLISECONDS


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each, by itself."""
    return Cost(
        **{each.name: statistics.median(getattr(cost, each.name) for cost in costs) for each in fields(Cost)}
    )
