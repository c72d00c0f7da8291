"""The cost of firing the same number of due jobs among few jobs and among a million, and how late slots are fired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from benchmarks import data, lateness
from benchmarks.cost import Cost, median
from benchmarks.crowd import Crowd
from benchmarks.floor import COMMIT
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET_RATIO = 1.5
TARGET_DATABASE_MS, TARGET_PROCESSOR_MS = 300.0, 40.0  # for 1,000 due


def run(_servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Fire at each size in ascending order, and at the smallest again, since the speed of the machine may drift."""
    samples: dict[tuple[int, int], list[Cost]] = defaultdict(list)
    crowd = Crowd(say)
    for jobs in sizes.jobs:
        _measure(crowd, jobs, sizes, samples, say)
    late = lateness.run_slots(crowd, sizes.late_seconds, say)
    data.clear()
    _measure(Crowd(say), min(sizes.jobs), sizes, samples, say)
    costs = {at: median(found) for at, found in samples.items()}
    return [*_figures(costs, sizes), *_processor(costs, sizes), *_ratios(costs, sizes), *late]


def _measure(
    crowd: Crowd,
    jobs: int,
    sizes: Sizes,
    samples: dict[tuple[int, int], list[Cost]],
    say: Callable[[str], None],
) -> None:
    """Fire each number of due jobs `fire_rounds` times among `jobs` jobs."""
    from benchmarks.beat import Beat

    crowd.grow_to(jobs)
    beat = Beat()
    beat.warm_up(crowd, sizes.due)
    for due in sizes.due:
        samples[jobs, due] += [beat.fire(crowd, due) for _ in range(sizes.fire_rounds)]
        say(f"{jobs:,} jobs, {due:,} due: {median(samples[jobs, due]).wall:.1f} ms")


def _figures(costs: dict[tuple[int, int], Cost], sizes: Sizes) -> list[Figure]:
    return [
        Figure(
            name=f"fire {due:,} due of {jobs:,} jobs, database",
            value=cost.database,
            unit="ms",
            floor=COMMIT,
            at_most=TARGET_DATABASE_MS if due == max(sizes.due) else None,
            note=f"{cost.commit:.1f} ms of it COMMIT; wall {cost.wall:.1f} ms",
        )
        for (jobs, due), cost in costs.items()
    ]


def _processor(costs: dict[tuple[int, int], Cost], sizes: Sizes) -> list[Figure]:
    due = max(sizes.due)
    return [
        Figure(
            name=f"fire {due:,} due of {jobs:,} jobs, beat's processor",
            value=costs[jobs, due].cpu,
            unit="ms",
            at_most=TARGET_PROCESSOR_MS,
            note="all threads, with those of its hints that left meanwhile",
        )
        for jobs in sizes.jobs
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
