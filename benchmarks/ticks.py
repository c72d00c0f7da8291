"""The cost of a tick of beat: Rondo compared to django-celery-beat with the same number of schedules.

Both use the same PostgreSQL (in separate databases), broker and pool size, and the same number is due.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.cost import Cost, measured, median
from benchmarks.crowd import Crowd
from benchmarks.fleet import ROOT
from benchmarks.report import Figure
from benchmarks.servers import Servers, database
from benchmarks.sizes import Sizes

if TYPE_CHECKING:
    from benchmarks.beat import Beat

TARGET = 50  # times cheaper than django-celery-beat, at the largest number


@dataclass(frozen=True, kw_only=True)
class _Ticks:
    """Cost of ticks. `due` and `written` by the number due; `written`: what beat stores outside of ticks."""

    idle: Cost
    edited: Cost
    due: dict[int, Cost]
    written: dict[int, Cost]


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure both at each number of schedules."""
    crowd, figures = Crowd(say), list[Figure]()
    with database(servers.database_url) as their_database:
        for count in sizes.schedules:
            crowd.grow_to(count)
            ours = _measure_rondo(crowd, sizes)
            say(f"{count:,} jobs: {ours.idle.wall:.2f} ms an idle tick")
            theirs = _measure_celery_beat(their_database, servers.broker_url, count, sizes)
            say(f"{count:,} schedules of django-celery-beat: {theirs.idle.wall:.2f} ms an idle tick")
            figures += _figures(count, ours, theirs, TARGET if count == max(sizes.schedules) else None)
    return figures


def _figures(count: int, ours: _Ticks, theirs: _Ticks, target: float | None) -> list[Figure]:
    pairs = [("nothing due", ours.idle, theirs.idle), ("an edit", ours.edited, theirs.edited)]
    pairs += [(f"{due:,} due", cost, theirs.due[due]) for due, cost in ours.due.items()]
    written = {f"{due:,} due": cost for due, cost in theirs.written.items()}
    return [
        Figure(
            name=f"django-celery-beat to Rondo, {count:,}, {name}",
            value=their.wall / our.wall,
            at_least=target,
            note=f"wall {their.wall:.1f} to {our.wall:.1f} ms, processor {their.cpu:.1f} to {our.cpu:.1f} ms,"
            f" PostgreSQL {their.database:.1f} to {our.database:.1f} ms"
            + (f"; then {written[name].wall:.1f} ms to store that they ran" if name in written else ""),
        )
        for name, our, their in pairs
    ]


def _measure_rondo(crowd: Crowd, sizes: Sizes) -> _Ticks:
    from benchmarks.beat import Beat

    beat, rounds = Beat(), range(sizes.fire_rounds)
    for due in (1, *sizes.ticks_due):
        _fire(beat, crowd.pick(due))  # warm-up
    return _Ticks(
        idle=median([_tick_idle(beat, sizes.idle_ticks) for _ in rounds]),
        edited=median([_tick_after_edit(beat, crowd) for _ in rounds]),
        due={due: median([_fire(beat, crowd.pick(due)) for _ in rounds]) for due in sizes.ticks_due},
        written={},
    )


def _tick_idle(beat: Beat, ticks: int) -> Cost:
    with measured() as cost:
        for _ in range(ticks):
            beat.tick_all()
    return cost.over(ticks)


def _tick_after_edit(beat: Beat, crowd: Crowd) -> Cost:
    from automations.jobs.edit import update_job
    from sessions_app.postgres.notify import publisher

    update_job(crowd.pick(1)[0], {"message": "look at the repo"})
    publisher().flush(60.0)
    return _tick_idle(beat, 1)


def _fire(beat: Beat, ids: list[str]) -> Cost:
    from sessions_app import hints

    data.make_due(ids)
    with measured() as cost:
        beat.tick_all()
        hints.flush_hints(60.0)
    data.check_fired(ids)
    data.end_fired()
    return cost


def _measure_celery_beat(database_url: str, broker_url: str, count: int, sizes: Sizes) -> _Ticks:
    request = {
        "schedules": count,
        "due": sizes.ticks_due,
        "rounds": sizes.rounds,
        "idle_ticks": sizes.idle_ticks,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.celery_beat", json.dumps(request)],
        cwd=ROOT,
        env=os.environ
        | {
            "DATABASE_URL": database_url,
            "CELERY_BROKER_URL": broker_url,
            "DJANGO_SETTINGS_MODULE": "benchmarks.celery_beat.settings",
        },
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    by_due = {
        name: {int(due): Cost(**cost) for due, cost in found[name].items()} for name in ("due", "written")
    }
    return _Ticks(idle=Cost(**found["idle"]), edited=Cost(**found["edited"]), **by_due)
