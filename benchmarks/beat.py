"""Rondo's own beat scheduler, ticked without the waits in between. Import it once Django is set up."""

from __future__ import annotations

import threading

from automations.beat import Scheduler
from config.celery import app


class Beat(Scheduler):
    """Where it would wait, it only notes that."""

    def __init__(self) -> None:
        super().__init__(app=app, lazy=True)
        self._changed = self._waits = _Waits()

    def tick_all(self) -> None:
        """Tick until nothing is left to do."""
        before = self._waits.count
        while self._waits.count == before:
            self.tick()


class _Waits(threading.Event):
    count = 0

    def wait(self, _timeout: float | None = None) -> bool:
        self.count += 1
        return True
