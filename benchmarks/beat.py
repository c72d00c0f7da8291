"""Rondo's beat scheduler, ticked without waits. Import it after django.setup()."""

from __future__ import annotations

import threading

from automations.beat import Scheduler
from config.celery import app


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


class _Waits(threading.Event):
    count = 0

    def wait(self, _timeout: float | None = None) -> bool:
        self.count += 1
        return True
