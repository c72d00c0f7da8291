"""Rondo's beat scheduler, ticked without waits. Import it after django.setup()."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from automations.beat import Scheduler
from benchmarks import data
from benchmarks.cost import Cost, measured
from benchmarks.crowd import Crowd
from config.celery import app
from sessions_app import hints

WARM_UP = 3  # calls of `fire`, which fires twice


class Beat(Scheduler):
    """A scheduler that counts its waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__(app=app, lazy=True)
        self._changed = self._waits = _Waits()

    def tick_all(self) -> None:
        """Tick until the scheduler would wait."""
        before = self._waits.count
        while self._waits.count == before:
            self.tick()

    def warm_up(self, crowd: Crowd, numbers_due: Iterable[int]) -> None:
        """Fire each number of jobs six times: from then on PostgreSQL keeps the plans that it can keep."""
        for due in numbers_due:
            for _ in range(WARM_UP):
                self.fire(crowd, due)

    def fire(self, crowd: Crowd, due: int, *, with_hints: bool = False) -> Cost:
        """Fire so many jobs, and check that exactly they have a run and a turn. `with_hints`: until these are sent.

        The cost is that of a second time: at the first, after the VACUUM of the call before, PostgreSQL plans again.
        """
        self._fire(crowd.pick(due), tidy=False, with_hints=with_hints)
        return self._fire(crowd.pick(due), tidy=True, with_hints=with_hints)

    def _fire(self, ids: list[str], *, tidy: bool, with_hints: bool) -> Cost:
        data.make_due(ids)
        with measured() as cost:
            self.tick_all()
            if with_hints:
                hints.flush_hints(60.0)
        hints.flush_hints(60.0)
        data.check_fired(ids)
        data.end_fired(tidy=tidy)
        return cost


class _Waits(threading.Event):
    count = 0

    def wait(self, _timeout: float | None = None) -> bool:
        self.count += 1
        return True
