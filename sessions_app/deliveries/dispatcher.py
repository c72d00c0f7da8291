"""The dispatcher of a worker process: threads of its own send deliveries, so that no turn waits for a receiver.

A place (a host, a mail server) gets only some of the threads, all places that were slow lately share half of them, and
so do all deliveries of one user. The last threads are for users who have none. So receivers that hang delay nobody
else, however many of them a user names. The claim in the database keeps the order within a lane. The sweep finds lanes
whose next delivery is due and whose hint was lost or never sent.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
import structlog
from django.conf import settings
from django.db import connection, transaction

from sessions_app.deliveries.send import Receiver, receiver_of, send_next
from sessions_app.hints import DeliveryLane
from sessions_app.limits import running_turns
from sessions_app.models import Delivery, Session
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.postgres import statements
from sessions_app.postgres.rows import fetch
from sessions_app.postgres.statements import Statement, seconds_parameter, table

log = structlog.get_logger(__name__)

THREADS = 32
SHARE = 4  # threads that may be busy with one place
MOST_QUEUED = 10_000  # lanes; the sweep finds what comes after
LEFT_FREE = 4  # one of so many threads is kept for users with no thread
MOST_PARKED = 100  # lanes of a user that wait for the same group
SLOW_FOR = 60.0  # seconds that a place counts as slow after a slow attempt
STOP_TIMEOUT = 5.0  # seconds that running attempts are waited for when the process ends
_SLOW = "(slow places)"
MOST_HINTS = 1_000  # of one sweep
HINT_AGAIN_AFTER = 2  # sweeps
SWEEP_LOCK = 0x52_6F_6E_64_6F_03  # one at a time in the whole fleet

_delivery, _session = table(Delivery), table(Session)
_SWEEP = seconds_parameter("sweep")
_COLUMNS = ("session_id", "channel", "id", "next_attempt_at", "hinted_at", "created_at")

Group = str | int  # a place, all slow places, or a user's id


class DeliveryDispatcher:
    """Takes lanes and sends their deliveries."""

    def __init__(self, threads: int = THREADS, share: int = SHARE) -> None:
        self._threads, self._share = threads, share
        self._changed = threading.Condition()
        self._ready: queue.SimpleQueue[DeliveryLane] = queue.SimpleQueue()
        self._queued: set[DeliveryLane] = set()  # what is in `_ready`
        self._sending = 0  # threads
        self._busy: Counter[Group] = Counter()  # sending threads by group
        # lanes that wait for a full group, by that group and their owner; owners take turns
        self._parked: dict[tuple[Group, int], OrderedDict[DeliveryLane, None]] = {}
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
        receiver = receiver_of(lane)
        if receiver is None:
            return
        groups = self._enter(lane, receiver)
        if not groups:
            return
        began = time.monotonic()
        try:
            more = send_next(lane)
        finally:
            self._leave(receiver.place, groups, time.monotonic() - began)
        if more:
            self.take(lane)  # behind the others: a long lane must not keep the thread

    def _enter(self, lane: DeliveryLane, receiver: Receiver) -> Sequence[Group]:
        """Count this thread in the groups of the receiver. None when one of them is full, which parks the lane."""
        with self._changed:
            if self._stopped:
                return ()
            is_slow = self._slow_until.get(receiver.place, 0.0) > time.monotonic()
            groups: list[Group] = [receiver.owner, receiver.place, *([_SLOW] if is_slow else [])]
            full = next(filter(self._is_full, groups), None)
            if full is None:
                self._sending += 1
                self._busy.update(groups)
            else:
                parked = self._parked.setdefault((full, receiver.owner), OrderedDict())
                if len(parked) < MOST_PARKED:
                    parked[lane] = None
            self._unpark()  # a lane that was unparked for one group may have gone to another
            return groups if full is None else ()

    def _leave(self, place: str, groups: Sequence[Group], seconds: float) -> None:
        with self._changed:
            self._sending -= 1
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
            with_room = {
                group: (group, owner) for group, owner in reversed(self._parked) if not self._is_full(group)
            }
            for first in with_room.values():  # the one that waits longest of each group
                waiting = self._parked.pop(first)
                lane, _ = waiting.popitem(last=False)
                if waiting:
                    self._parked[first] = waiting
                self.take(lane)

    def _is_full(self, group: Group) -> bool:
        busy, half = self._busy[group], max(1, self._threads // 2)
        if isinstance(group, int):
            few_are_left = self._sending >= self._threads - self._threads // LEFT_FREE
            return busy >= (1 if few_are_left else half)
        return busy >= (half if group == _SLOW else self._share)


def _is_open_in_a_lane(rows: Any) -> Any:
    state = rows.c.state.in_([sa.literal_column(f"'{each}'") for each in ON_THE_WAY])
    return sa.and_(state, rows.c.session_id.is_not(None))


def _overdue() -> Statement:
    # the oldest open delivery of each lane
    heads = statements.heads(_delivery, _COLUMNS, ("session_id", "channel"), ("id",), _is_open_in_a_lane)
    due = sa.func.coalesce(heads.c.next_attempt_at, heads.c.created_at + _SWEEP) <= sa.func.now()
    silent = sa.or_(
        heads.c.hinted_at.is_(None), heads.c.hinted_at < sa.func.now() - HINT_AGAIN_AFTER * _SWEEP
    )
    by_owner = sa.func.row_number().over(
        partition_by=_session.c.owner_id, order_by=(heads.c.hinted_at.nulls_first(), heads.c.id)
    )
    ranked = (
        sa.select(heads.c.id, by_owner.label("rank"))
        .join(_session, _session.c.id == heads.c.session_id)
        .where(due, silent, running_turns.is_active(_session.c.owner_id))
        .subquery()
    )
    # owners take turns
    chosen = sa.select(ranked.c.id).order_by(ranked.c.rank, ranked.c.id).limit(MOST_HINTS)
    return Statement(
        sa.update(_delivery)
        .where(_delivery.c.id.in_(chosen))
        .values(hinted_at=sa.func.now())
        .returning(_delivery.c.session_id, _delivery.c.channel)
    )


OVERDUE = _overdue()


def sweep_deliveries(take: Callable[[DeliveryLane], None]) -> int:
    """Give the due lanes to `take`, this process's dispatcher; returns their number.

    One process sweeps at a time. No hint is sent: a retry needs no broker and no slot of the turns.
    """
    with transaction.atomic():
        [(is_alone,)] = fetch("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
        if not is_alone:
            return 0
        rows = OVERDUE.all(sweep=settings.RONDO_SWEEP_SECONDS)
    if rows:
        log.info("deliveries_swept", lanes=len(rows))
    for row in rows:
        take(DeliveryLane(session_id=row.session_id, channel=row.channel))
    return len(rows)
