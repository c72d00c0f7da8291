"""What firing costs among few jobs and among a million, with the same number due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.cost import Cost, measured, median
from benchmarks.crowd import Crowd
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

if TYPE_CHECKING:
    from benchmarks.beat import Beat

TARGET_RATIO = 1.5
TARGET_DATABASE_MS = 100.0  # for 1,000 due
WARM_UP = 3  # rounds that do not count: connections, plans and imports of this process


def run(_servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Fire at each size, from the smallest to the largest, and at the smallest once more: the machine may drift."""
    samples: dict[tuple[int, int], list[Cost]] = defaultdict(list)
    crowd = Crowd(say)
    for jobs in sizes.jobs:
        _sample(crowd, jobs, sizes, samples, say)
    data.clear()
    _sample(Crowd(say), min(sizes.jobs), sizes, samples, say)
    costs = {at: median(found) for at, found in samples.items()}
    return [*_figures(costs, sizes), *_ratios(costs, sizes)]


def _sample(
    crowd: Crowd,
    jobs: int,
    sizes: Sizes,
    samples: dict[tuple[int, int], list[Cost]],
    say: Callable[[str], None],
) -> None:
    """Fire each number due `fire_rounds` times among so many jobs."""
    from benchmarks.beat import Beat

    crowd.grow_to(jobs)
    beat = Beat()
    for _ in range(WARM_UP):
        _fired(beat, crowd.pick(max(sizes.due)))
    for due in sizes.due:
        samples[jobs, due] += [_fired(beat, crowd.pick(due)) for _ in range(sizes.fire_rounds)]
        say(f"{jobs:,} jobs, {due:,} due: {median(samples[jobs, due]).wall:.1f} ms")


def _figures(costs: dict[tuple[int, int], Cost], sizes: Sizes) -> list[Figure]:
    return [
        Figure(
            name=f"fire {due:,} due of {jobs:,} jobs, database",
            value=cost.database,
            unit="ms",
            at_most=TARGET_DATABASE_MS if due == max(sizes.due) else None,
            note=f"{cost.commit:.1f} ms of it COMMIT; wall {cost.wall:.1f} ms",
        )
        for (jobs, due), cost in costs.items()
    ]


def _ratios(costs: dict[tuple[int, int], Cost], sizes: Sizes) -> list[Figure]:
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


def _fired(beat: Beat, ids: list[str]) -> Cost:
    """Tick until these are fired; each must have its run and turn, and no other job. Then all have ended."""
    from sessions_app import wake

    data.make_due(ids)
    with measured() as cost:
        beat.tick_all()
    wake.flush(60.0)
    data.check_fired(ids)
    data.end_fired()
    return cost
