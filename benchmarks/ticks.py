"""What a tick of beat costs among few jobs and many: Rondo's, and that of django-celery-beat with as many schedules.

Both with the same PostgreSQL, in databases of their own, the same broker, the same pool and the same number due.
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
    """What a beat's ticks cost. `due` and `written` by the number due; `written` is what it stores beside its ticks."""

    idle: Cost
    edited: Cost
    due: dict[int, Cost]
    written: dict[int, Cost]


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Both in turn at each number of schedules."""
    crowd, figures = Crowd(say), list[Figure]()
    with database(servers.database_url) as their_database:
        for count in sizes.schedules:
            crowd.grow_to(count)
            ours = _ours(crowd, sizes)
            say(f"{count:,} jobs: {ours.idle.wall:.2f} ms an idle tick")
            theirs = _theirs(their_database, servers.broker_url, count, sizes)
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


def _ours(crowd: Crowd, sizes: Sizes) -> _Ticks:
    from benchmarks.beat import Beat

    beat, rounds = Beat(), range(sizes.fire_rounds)
    for due in (1, *sizes.ticks_due):
        _fired(beat, crowd.pick(due))  # imports, connections and plans of this process
    return _Ticks(
        idle=median([_idle(beat, sizes.idle_ticks) for _ in rounds]),
        edited=median([_edited(beat, crowd) for _ in rounds]),
        due={due: median([_fired(beat, crowd.pick(due)) for _ in rounds]) for due in sizes.ticks_due},
        written={},
    )


def _idle(beat: Beat, ticks: int) -> Cost:
    with measured() as cost:
        for _ in range(ticks):
            beat.tick_all()
    return cost.over(ticks)


def _edited(beat: Beat, crowd: Crowd) -> Cost:
    from automations.edit import update_job
    from sessions_app.publish import publisher

    update_job(crowd.pick(1)[0], {"message": "look at the repo"})
    publisher().flush(60.0)
    return _idle(beat, 1)


def _fired(beat: Beat, ids: list[str]) -> Cost:
    from sessions_app import wake

    data.make_due(ids)
    with measured() as cost:
        beat.tick_all()
        wake.flush(60.0)
    data.check_fired(ids)
    data.end_fired()
    return cost


def _theirs(database_url: str, broker_url: str, count: int, sizes: Sizes) -> _Ticks:
    asked = {
        "schedules": count,
        "due": sizes.ticks_due,
        "rounds": sizes.rounds,
        "idle_ticks": sizes.idle_ticks,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.celery_beat", json.dumps(asked)],
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
