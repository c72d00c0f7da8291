"""The dispatcher of a worker process: threads of its own send deliveries, so that no turn waits for a receiver.

A place (a host, a mail server) gets only some of the threads, and all places that were slow lately share half of
them: a receiver that hangs delays nobody else. The claim in the database keeps the order within a lane.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence

import structlog
from django.conf import settings
from django.db import connection

from sessions_app.deliveries.send import receiver_of, send_next
from sessions_app.hints import DeliveryLane

log = structlog.get_logger(__name__)

THREADS = 32
SHARE = 4  # threads that may be busy with one place
MOST_QUEUED = 10_000  # lanes; the sweep finds what comes after
MOST_PARKED = 100  # lanes that wait for one place, or for all slow ones
SLOW_FOR = 60.0  # seconds that a place counts as slow after a slow attempt
STOP_TIMEOUT = 5.0  # seconds that running attempts are waited for when the process ends
_SLOW = "(slow places)"


class DeliveryDispatcher:
    """Takes lanes and sends their deliveries."""

    def __init__(self, threads: int = THREADS, share: int = SHARE) -> None:
        self._threads, self._share = threads, share
        self._changed = threading.Condition()
        self._ready: queue.SimpleQueue[DeliveryLane] = queue.SimpleQueue()
        self._queued: set[DeliveryLane] = set()  # what is in `_ready`
        self._busy: Counter[str] = Counter()  # sending threads by group: a place, or all slow places
        self._parked: dict[str, OrderedDict[DeliveryLane, None]] = {}  # lanes that wait for a full group
        self._slow_until: dict[str, float] = {}
        self._started = 0
        self._stopped = False

    def take(self, lane: DeliveryLane) -> None:
        """Queue a lane that may have something to send. A second call is harmless, also while the lane is sent."""
        with self._changed:
            if self._stopped or lane in self._queued or len(self._queued) >= MOST_QUEUED:
                return
            self._queued.add(lane)
            self._ready.put(lane)
            if self._started < self._threads:
                self._started += 1
                threading.Thread(target=self._run, name="rondo-deliveries", daemon=True).start()

    def stop(self) -> None:
        """Begin nothing more, and wait briefly for running attempts. Those that do not end are repeated later."""
        with self._changed:
            self._stopped = True
            self._changed.wait_for(lambda: not self._busy, STOP_TIMEOUT)

    def _run(self) -> None:
        while True:
            lane = self._ready.get()
            with self._changed:
                self._queued.discard(lane)  # before its rows are read: a later hint queues it again
            try:
                self._send(lane)
            except Exception:  # the database is down, or a bug: the sweep finds the lane again
                log.exception("dispatcher_failed", session=str(lane.session_id), channel=lane.channel)
            finally:
                connection.close()
                self._unpark()

    def _send(self, lane: DeliveryLane) -> None:
        place = receiver_of(lane)
        if place is None:
            return
        groups = self._enter(lane, place)
        if not groups:
            return
        began = time.monotonic()
        try:
            more = send_next(lane)
        finally:
            self._leave(place, groups, time.monotonic() - began)
        if more:
            self.take(lane)  # behind the others: a long lane must not keep the thread

    def _enter(self, lane: DeliveryLane, place: str) -> Sequence[str]:
        """Count this thread in the groups of the place; none when one of them is full, which parks the lane."""
        with self._changed:
            if self._stopped:
                return ()
            groups = (place, _SLOW) if self._slow_until.get(place, 0.0) > time.monotonic() else (place,)
            full = next(filter(self._is_full, groups), None)
            if full is None:
                self._busy.update(groups)
            else:
                parked = self._parked.setdefault(full, OrderedDict())
                if len(parked) < MOST_PARKED:
                    parked[lane] = None
            self._unpark()  # a lane that was unparked for one group may have gone to another
            return () if full else groups

    def _leave(self, place: str, groups: Sequence[str], seconds: float) -> None:
        with self._changed:
            self._busy -= Counter(groups)  # this drops groups with no thread left
            now = time.monotonic()
            self._slow_until = {each: until for each, until in self._slow_until.items() if until > now}
            self._slow_until.pop(place, None)
            if seconds > settings.RONDO_DELIVERY_SECONDS / 2:
                self._slow_until[place] = now + SLOW_FOR
            self._changed.notify_all()

    def _unpark(self) -> None:
        """Queue a parked lane of each group that has room. Its rows are read again: it may have nothing to send now."""
        with self._changed:
            for group in [each for each in self._parked if not self._is_full(each)]:
                lane, _ = self._parked[group].popitem(last=False)
                if not self._parked[group]:
                    del self._parked[group]
                self.take(lane)

    def _is_full(self, group: str) -> bool:
        return self._busy[group] >= (max(1, self._threads // 2) if group == _SLOW else self._share)
