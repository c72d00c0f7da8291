"""The postman of a worker process: its own threads send deliveries, so that no turn's slot waits for a receiver.

One place (a host, a mail server) gets only a part of the threads, and all places that were slow lately together only
half of them: whoever hangs holds up nobody else.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque

import structlog
from django.conf import settings
from django.db import connection

from sessions_app.send import place_of, send_next
from sessions_app.wake import PostLane

log = structlog.get_logger(__name__)

THREADS = 32
SHARE = 4  # threads that may be busy with one place
MOST_WAITING = 10_000  # lanes that are not parked; who comes then is found by the sweep
MOST_PARKED = 100  # lanes of one place, or of all slow ones
SLOW_FOR = 60.0  # seconds that a place is held for slow after it was
FAREWELL = 5.0  # seconds that what is being sent may still take when the process ends
_SLOW = "(slow places)"


class Postman:
    """Takes lanes and sends what they hold. Each lane is worked on by one thread at a time."""

    def __init__(self, threads: int = THREADS, share: int = SHARE) -> None:
        self._threads, self._share = threads, share
        self._ready: queue.SimpleQueue[PostLane] = queue.SimpleQueue()
        self._guard = threading.Condition()
        self._lanes: dict[PostLane, bool] = {}  # taken; True: hinted at again since
        self._busy: Counter[str] = Counter()  # threads by place, and those of all slow ones
        self._parked: dict[str, deque[PostLane]] = {}
        self._woken: dict[PostLane, str] = {}  # by a thread that became free there
        self._slow: dict[str, float] = {}  # until when a place is held for slow
        self._started = 0
        self._sending = 0
        self._stopped = False

    def take(self, lane: PostLane) -> None:
        """There may be something to send. Twice is harmless; when too many wait the sweep asks again."""
        with self._guard:
            if self._stopped or (lane not in self._lanes and len(self._lanes) >= MOST_WAITING):
                self._woken.pop(lane, None)
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

    def _work(self, lane: PostLane) -> None:
        with self._guard:
            room = self._woken.pop(lane, None)
        entered: list[str] = []
        full: str | None = None
        place: str | None = None
        try:
            place = place_of(lane)
            if place is None:
                self._left(lane)
            else:
                entered, full = self._entered(lane, place)
        finally:
            # it came to nothing or goes elsewhere: the room is the next one's. If it is taken, who took it wakes one
            if room is not None and room not in entered and room != full:
                self._wake([room])
        if place is not None and entered:
            self._send(lane, place, entered)

    def _send(self, lane: PostLane, place: str, groups: list[str]) -> None:
        more, began = False, time.monotonic()
        try:
            more = send_next(lane)
        finally:
            self._free(place, groups, time.monotonic() - began)
        if more:
            self._ready.put(lane)  # behind the others: a long lane is not sent at one go
        else:
            self._left(lane)

    def _entered(self, lane: PostLane, place: str) -> tuple[list[str], str | None]:
        """The groups of threads that this one counts in now; none: the lane waits for room in a full one."""
        with self._guard:
            if self._stopped:
                return [], None
            groups = [place, _SLOW] if self._slow.get(place, 0.0) > time.monotonic() else [place]
            bounds = {place: self._share, _SLOW: max(1, self._threads // 2)}
            full = next((group for group in groups if self._busy[group] >= bounds[group]), None)
            if full is None:
                self._busy.update(groups)
                self._sending += 1
                return groups, None
            parked = self._parked.setdefault(full, deque())
            # a parked lane is forgotten: who hints at it again has it looked at anew, it may go elsewhere by now
            self._lanes.pop(lane, None)
            if len(parked) < MOST_PARKED and lane not in parked:
                parked.append(lane)
            return [], full

    def _free(self, place: str, groups: list[str], took: float) -> None:
        """The thread is free: every group that it counted in has room."""
        with self._guard:
            self._sending -= 1
            self._busy.subtract(groups)
            self._busy += Counter()  # drops what is at nothing
            now = time.monotonic()
            self._slow = {each: until for each, until in self._slow.items() if until > now and each != place}
            if took > settings.RONDO_DELIVERY_SECONDS / 2:
                self._slow[place] = now + SLOW_FOR
            self._guard.notify_all()
        self._wake(groups)

    def _wake(self, groups: list[str]) -> None:
        """There is room in these groups: one lane that waits for each is looked at anew."""
        woken = []
        with self._guard:
            for group in groups:
                if parked := self._parked.get(group):
                    woken.append(lane := parked.popleft())
                    self._woken[lane] = group
                    if not parked:
                        del self._parked[group]
        for lane in woken:
            self.take(lane)

    def _left(self, lane: PostLane) -> None:
        """Nothing more to send in the lane, unless a hint came meanwhile."""
        with self._guard:
            if self._lanes.pop(lane, False) and not self._stopped:
                self._lanes[lane] = False
                self._ready.put(lane)
