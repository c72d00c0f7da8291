"""Hints: Celery messages that say "this session has work". A lost hint only costs the sweep's delay.

A separate thread sends them after the commit, so a hung broker blocks nobody.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import structlog
from django.conf import settings
from django.db import transaction

from agent_core.process import PerProcess
from sessions_app.failures import log_failure
from sessions_app.models import Lane

TASK = "sessions.run"
MAINTENANCE = "rondo.maintain"
DELIVER = "rondo.deliver"
MAINTENANCE_QUEUE = "auto.any"
DELIVERY_QUEUE = "deliveries"
STALE_AFTER = 10.0  # seconds
BATCH = 25  # hints that are published together; a person's hint waits for these at most

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Hint:
    """A hint for one session and lane. `anywhere`: the shard's own workers did not respond, so ask all workers."""

    session_id: uuid.UUID
    lane: str
    anywhere: bool = False

    task = TASK

    @property
    def args(self) -> list[str]:
        """The arguments of the task."""
        return [str(self.session_id), self.lane]

    @property
    def queue(self) -> str:
        """The Celery queue for this hint."""
        if self.anywhere:
            return f"{self.lane}.any"
        return f"{self.lane}.{shard_of(self.session_id)}"


@dataclass(frozen=True, kw_only=True)
class MaintenanceHint:
    """A hint that there may be rows to prune."""

    task = MAINTENANCE
    args: tuple[str, ...] = ()
    queue = MAINTENANCE_QUEUE


@dataclass(frozen=True, kw_only=True)
class DeliveryLane:
    """The deliveries from one session to one channel, which are sent one after the other.

    As a hint it says that the lane may have something to send.
    """

    session_id: uuid.UUID
    channel: str

    task = DELIVER
    queue = DELIVERY_QUEUE

    @property
    def args(self) -> list[str]:
        """The arguments of the task."""
        return [str(self.session_id), self.channel]


AnyHint = Hint | MaintenanceHint | DeliveryLane
_apps: list[Callable[[], Any]] = []


def use_celery_app(app: Callable[[], Any]) -> None:
    """Set the Celery app that sends hints. `app` is called with the first hint."""
    _apps[:] = [app]


def celery_app() -> Any:
    """Return the Celery app that sends hints."""
    return _apps[0]()


def shard_of(session_id: uuid.UUID) -> int:
    """Return the shard number of a session, the same in every process and release."""
    return crc32(session_id.bytes) % settings.TURN_SHARDS


def shard_queues() -> list[str]:
    """List every queue that carries hints."""
    names = [*map(str, range(settings.TURN_SHARDS)), "any"]
    return [f"{lane}.{name}" for lane in Lane.values for name in names] + [DELIVERY_QUEUE]


def wake(session_id: uuid.UUID, lane: str) -> None:
    """Send a hint for a session after the current transaction commits; at once if there is none."""
    transaction.on_commit(lambda: send([Hint(session_id=session_id, lane=lane)]), robust=True)


def wake_dispatcher(session_id: uuid.UUID, channel: str) -> None:
    """After the commit, give the lane to this process's dispatcher; in a process without one, send a hint."""
    lane = DeliveryLane(session_id=session_id, channel=channel)
    transaction.on_commit(lambda: (_dispatcher.peek() or _hint)(lane), robust=True)


def register_dispatcher(take: Callable[[DeliveryLane], None]) -> None:
    """Register this process's dispatcher. Deliveries committed here then need no broker, and no slot of the turns."""
    _dispatcher.put(take)


def _hint(lane: DeliveryLane) -> None:
    send([lane])


def ask_for_maintenance() -> None:
    """Send a hint for a round of maintenance."""
    _sender().put([MaintenanceHint()])


def send(hints: Iterable[AnyHint]) -> None:
    """Pass hints to the sending thread."""
    _sender().put(hints)


def flush_hints(timeout: float) -> None:
    """Wait until every hint was sent or dropped, for at most `timeout` seconds."""
    _sender().flush(timeout)


class _Sender:
    """One thread that publishes hints, `BATCH` at a time. Hints for people's turns go before all others.

    A hint that has waited for `STALE_AFTER` is dropped, since the sweep hints at its session again. So with a slow
    broker people wait for the hints of other people at most, and the queue stays bounded.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._people: dict[AnyHint, float] = {}  # each with the time it was added, oldest first
        self._others: dict[AnyHint, float] = {}
        self._declared: set[str] = set()
        self._busy = False
        self._thread: threading.Thread | None = None

    def put(self, hints: Iterable[AnyHint]) -> None:
        with self._changed:
            now = time.monotonic()
            for hint in hints:
                waiting = self._people if _is_persons(hint) else self._others
                waiting.setdefault(hint, now)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rondo-hints", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not (self._people or self._others or self._busy), timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._people or self._others)
                hints = self._take()
                self._busy = bool(hints)
            if hints:
                self._publish(hints)

    def _take(self) -> list[AnyHint]:
        """Take the next hints. None of them when all were stale and have been dropped."""
        stale = time.monotonic() - STALE_AFTER
        taken: list[AnyHint] = []
        dropped = 0
        for waiting in (self._people, self._others):
            while waiting and len(taken) < BATCH:
                hint = next(iter(waiting))
                if waiting.pop(hint) > stale:
                    taken.append(hint)
                else:
                    dropped += 1
        if dropped:
            log.warning("hints_dropped", dropped=dropped, error="the broker is slow")
        return taken

    def _publish(self, hints: Sequence[AnyHint]) -> None:
        """Publish one message for each hint; with Redis all of them in one round trip."""
        app = celery_app()
        try:
            with app.producer_or_acquire() as producer, producer.batch(BATCH):
                for hint in hints:
                    # looking up whether the queue was declared costs as much as the rest
                    declare = [] if hint.queue in self._declared else [app.amqp.queues[hint.queue]]
                    producer.publish(**_message(hint), declare=declare)
                    self._declared.add(hint.queue)
        except Exception as error:  # noqa: BLE001 - the broker's client may raise anything; the sweep hints again
            with self._changed:
                dropped = len(hints) + len(self._people) + len(self._others)
                self._people, self._others = {}, {}
            self._declared.clear()  # the broker may have lost its queues
            log_failure(log, "hints_dropped", error, _refusals(app), dropped=dropped)


def _refusals(app: Any) -> tuple[type[Exception], ...]:
    """The errors of a broker that is away or refuses what it is sent."""
    from kombu.exceptions import KombuError

    link = app.connection_for_write()
    return (KombuError, OSError, *link.connection_errors, *link.channel_errors)


def _message(hint: AnyHint) -> dict[str, Any]:
    """A task by Celery's message protocol, version 2, without what it leaves open and hints do not use.

    `send_task` makes the same message, at several times the cost.
    """
    task_id = str(uuid.uuid4())
    more = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    return {
        "exchange": "",  # a broker's default exchange: the routing key names the queue
        "routing_key": hint.queue,
        "headers": {
            "lang": "py",
            "task": hint.task,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
        },
        "correlation_id": task_id,
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "body": json.dumps([hint.args, {}, more]),
    }


def _is_persons(hint: AnyHint) -> bool:
    return isinstance(hint, Hint) and hint.lane == Lane.PEOPLE


_dispatcher: PerProcess[Callable[[DeliveryLane], None]] = PerProcess()
_process_sender: PerProcess[_Sender] = PerProcess()


def _sender() -> _Sender:
    return _process_sender.get(_Sender)
