"""What firing a batch costs among few jobs and among many, with the same number due."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks import data
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET_RATIO = 1.5
TARGET_DATABASE_MS = 100.0  # for 1,000 due
SESSIONS = 1_000
WARM_UP = 6  # rounds that do not count: connections, plans and imports of this process


@dataclass(kw_only=True)
class _Cost:
    """Milliseconds: all, and in statements (BEGIN and COMMIT are not among them)."""

    wall: float
    database: float


def run(_servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Fire the due jobs `fire_rounds` times at each size, from the smallest to the largest."""
    targets = data.sessions(data.person(MODEL), min(SESSIONS, max(sizes.due)))
    ids: list[str] = []
    costs: dict[tuple[int, int], _Cost] = {}
    for jobs in sizes.jobs:
        ids += data.jobs(targets, jobs - len(ids))
        data.settle()
        for _ in range(WARM_UP):
            _fired(ids[: sizes.due[0]])
        for due in sizes.due:
            costs[jobs, due] = _median([_fired(ids[-due:]) for _ in range(sizes.fire_rounds)])
            say(f"{jobs:,} jobs, {due:,} due: {costs[jobs, due].wall:.1f} ms")
    return [*_figures(costs, sizes), *_ratios(costs, sizes)]


def _figures(costs: dict[tuple[int, int], _Cost], sizes: Sizes) -> list[Figure]:
    return [
        Figure(
            name=f"fire {due:,} due of {jobs:,} jobs, database",
            value=cost.database,
            unit="ms",
            at_most=TARGET_DATABASE_MS if due == max(sizes.due) else None,
            note=f"wall {cost.wall:.0f} ms, {cost.wall / due:.2f} ms a job",
        )
        for (jobs, due), cost in costs.items()
    ]


def _ratios(costs: dict[tuple[int, int], _Cost], sizes: Sizes) -> list[Figure]:
    least = min(sizes.jobs)
    return [
        Figure(
            name=f"fire {due:,}: {jobs:,} jobs to {least:,}",
            value=costs[jobs, due].wall / costs[least, due].wall,
            at_most=TARGET_RATIO,
            note=f"database alone {costs[jobs, due].database / costs[least, due].database:.2f}",
        )
        for due in sizes.due
        for jobs in sizes.jobs[1:]
    ]


def _median(costs: list[_Cost]) -> _Cost:
    return _Cost(
        wall=statistics.median(cost.wall for cost in costs),
        database=statistics.median(cost.database for cost in costs),
    )


def _fired(ids: list[str]) -> _Cost:
    """Fire these in batches as beat does; every one must have queued its turn. Then all have ended."""
    from automations.fire import fire_due
    from sessions_app import wake

    data.make_due(ids)
    queued, left = 0, len(ids)
    with _timed() as cost:
        while left > 0:
            fired = fire_due()
            if not fired.claimed:
                break
            queued, left = queued + fired.queued, left - fired.claimed
    assert queued == len(ids), f"{queued} of {len(ids)} were queued"
    wake.flush(60.0)
    _end_all()
    return cost


_END = (
    # the same slots are to be fired again, so these runs move to slots of their own, long ago
    """UPDATE automations_runrecord SET state = 'succeeded', finished_at = now(), run_id = 'past:' || turn_id,
    scheduled_for = to_timestamp(turn_id) WHERE state = 'queued'""",
    """UPDATE sessions_app_turn SET state = 'succeeded', finished_at = now(), idempotency_key = NULL
    WHERE state = 'queued'""",
    "VACUUM ANALYZE automations_runrecord",
    "VACUUM ANALYZE sessions_app_turn",
)


def _end_all() -> None:
    """What was fired has run: the next round finds a past, not open runs and dead rows."""
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in _END:
            cursor.execute(statement)


@contextmanager
def _timed() -> Iterator[_Cost]:
    from django.db import connection

    cost = _Cost(wall=0.0, database=0.0)

    def timed(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        start = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            cost.database += (time.perf_counter() - start) * 1000

    start = time.perf_counter()
    with connection.execute_wrapper(timed):
        yield cost
    cost.wall = (time.perf_counter() - start) * 1000
