"""The postman of a worker process: its own threads send deliveries, so that no turn's slot waits for a receiver.

One place (a host, a mail server) gets only a part of the threads: one that hangs holds up nobody else.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque

import structlog
from django.db import connection

from sessions_app.send import Lane, place_of, send_next

log = structlog.get_logger(__name__)

THREADS = 16
SHARE = 4  # threads that may be busy with one place
MOST_WAITING = 10_000  # lanes; who comes then is found by the sweep
FAREWELL = 5.0  # seconds that what is being sent may still take when the process ends


class Postman:
    """Takes lanes and sends what they hold. Each lane is worked on by one thread at a time."""

    def __init__(self, threads: int = THREADS, share: int = SHARE) -> None:
        self._threads, self._share = threads, share
        self._ready: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        self._guard = threading.Condition()
        self._lanes: dict[Lane, bool] = {}  # taken; True: hinted at again since
        self._busy: Counter[str] = Counter()  # threads by place
        self._parked: dict[str, deque[Lane]] = {}
        self._started = 0
        self._sending = 0
        self._stopped = False

    def take(self, lane: Lane) -> None:
        """There may be something to send. Twice is harmless; when too many wait the sweep asks again."""
        with self._guard:
            if self._stopped or (lane not in self._lanes and len(self._lanes) >= MOST_WAITING):
                return
            if lane in self._lanes:
                self._lanes[lane] = True
                return
            self._lanes[lane] = False
            if self._started < min(self._threads, len(self._lanes)):
                self._started += 1
                threading.Thread(target=self._run, name="rondo-postman", daemon=True).start()
        self._ready.put(lane)

    def stop(self) -> None:
        """Take nothing more, and let what is being sent end, for a moment. What does not end is sent again later."""
        with self._guard:
            self._stopped = True
            until = time.monotonic() + FAREWELL
            while self._sending and (left := until - time.monotonic()) > 0:
                self._guard.wait(left)

    def _run(self) -> None:
        while True:
            lane = self._ready.get()
            try:
                self._work(lane)
            except Exception:  # the database is away, or a bug: the sweep asks again
                log.exception("postman_failed", session=str(lane.session_id), channel=lane.channel)
                self._left(lane)
            finally:
                connection.close()

    def _work(self, lane: Lane) -> None:
        place = place_of(lane)
        if place is None:
            self._left(lane)
            return
        with self._guard:
            if self._stopped:
                return
            if self._busy[place] >= self._share:
                self._parked.setdefault(place, deque()).append(lane)
                return
            self._busy[place] += 1
            self._sending += 1
        more = False
        try:
            more = send_next(lane)
        finally:
            self._free(place)
        if more:
            self._ready.put(lane)  # behind the others: a long lane is not sent at one go
        else:
            self._left(lane)

    def _free(self, place: str) -> None:
        with self._guard:
            self._sending -= 1
            self._busy[place] -= 1
            if not self._busy[place]:
                del self._busy[place]
            waiting = self._parked.get(place)
            if waiting:
                self._ready.put(waiting.popleft())
                if not waiting:
                    del self._parked[place]
            self._guard.notify_all()

    def _left(self, lane: Lane) -> None:
        """Nothing more to send in the lane, unless a hint came meanwhile."""
        with self._guard:
            if self._lanes.pop(lane, False) and not self._stopped:
                self._lanes[lane] = False
                self._ready.put(lane)
