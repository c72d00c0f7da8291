"""The cost of a tick of beat: Rondo compared to django-celery-beat with the same number of schedules.

Both use the same PostgreSQL (in separate databases), broker and pool size, and the same number is due. Their rounds
alternate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.cost import Cost, measured, median
from benchmarks.crowd import Crowd
from benchmarks.fleet import ROOT
from benchmarks.report import Figure
from benchmarks.servers import Servers, database
from benchmarks.sizes import Sizes

if TYPE_CHECKING:
    from benchmarks.beat import Beat

TARGET = 25  # times cheaper than django-celery-beat, at the largest number


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
    with (
        database(servers.database_url) as database_url,
        _celery_beat(database_url, servers.broker_url) as ask,
    ):
        for count in sizes.schedules:
            crowd.grow_to(count)
            beat = _warm_beat(crowd, sizes)
            ours, theirs = list[_Ticks](), list[_Ticks]()
            for number in range(1, sizes.rounds + 1):
                ours.append(_measure_rondo(beat, crowd, sizes))
                theirs.append(_measure_celery_beat(ask, count, sizes))
                idle = f"{ours[-1].idle.wall:.2f} and {theirs[-1].idle.wall:.2f} ms an idle tick"
                say(f"{count:,} schedules, round {number}: {idle}, Rondo and django-celery-beat")
            target = TARGET if count == max(sizes.schedules) else None
            figures += _figures(count, _median(ours), _median(theirs), target)
    return figures


def _median(rounds: list[_Ticks]) -> _Ticks:
    def by_due(name: str) -> dict[int, Cost]:
        found = [getattr(each, name) for each in rounds]
        return {due: median([each[due] for each in found]) for due in found[0]}

    return _Ticks(
        idle=median([each.idle for each in rounds]),
        edited=median([each.edited for each in rounds]),
        due=by_due("due"),
        written=by_due("written"),
    )


def _figures(count: int, ours: _Ticks, theirs: _Ticks, target: float | None) -> list[Figure]:
    pairs = [("nothing due", ours.idle, theirs.idle), ("an edit", ours.edited, theirs.edited)]
    pairs += [(f"{due:,} due", cost, theirs.due[due]) for due, cost in ours.due.items()]
    written = {f"{due:,} due": cost for due, cost in theirs.written.items()}
    return [
        Figure(
            name=f"django-celery-beat to Rondo, {count:,}, {name}",
            value=their.wall / our.wall,
            at_least=target,
            more_is_better=True,
            note=f"wall {their.wall:.1f} to {our.wall:.1f} ms, processor {their.cpu:.1f} to {our.cpu:.1f} ms,"
            f" PostgreSQL {their.database:.1f} to {our.database:.1f} ms"
            + (f"; then {written[name].wall:.1f} ms to store that they ran" if name in written else ""),
        )
        for name, our, their in pairs
    ]


def _warm_beat(crowd: Crowd, sizes: Sizes) -> Beat:
    from benchmarks.beat import Beat

    beat = Beat()
    beat.warm_up(crowd, sizes.ticks_due)
    return beat


def _measure_rondo(beat: Beat, crowd: Crowd, sizes: Sizes) -> _Ticks:
    return _Ticks(
        idle=_tick_idle(beat, sizes.idle_ticks),
        edited=_tick_after_edit(beat, crowd),
        due={due: beat.fire(crowd, due, with_hints=True) for due in sizes.ticks_due},
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


@contextmanager
def _celery_beat(database_url: str, broker_url: str) -> Iterator[subprocess.Popen[str]]:
    """A process with django-celery-beat alone."""
    environ = {
        "DATABASE_URL": database_url,
        "CELERY_BROKER_URL": broker_url,
        "DJANGO_SETTINGS_MODULE": "benchmarks.celery_beat.settings",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.celery_beat"],
        cwd=ROOT,
        env=os.environ | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _measure_celery_beat(process: subprocess.Popen[str], count: int, sizes: Sizes) -> _Ticks:
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"schedules": count, "due": sizes.ticks_due, "idle_ticks": sizes.idle_ticks}
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError("the process of django-celery-beat ended; its error is above")
    found: dict[str, Any] = json.loads(answer)
    by_due = {
        name: {int(due): Cost(**cost) for due, cost in found[name].items()} for name in ("due", "written")
    }
    return _Ticks(idle=Cost(**found["idle"]), edited=Cost(**found["edited"]), **by_due)
