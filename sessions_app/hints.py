"""Hints: Celery messages that say "this session has work". A lost hint only costs the sweep's delay.

A separate thread sends them after the commit, so a hung broker blocks nobody.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
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
MOST_WAITING = 10_000  # hints of a process that wait to be sent

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
    """A hint that there may be rows to prune; with a name in `args`, that this chore has something to do."""

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
_Waiting = tuple[bool, int, float, AnyHint]  # is no person's, number, when it was added
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


def ask_for_maintenance(chore: str = "") -> None:
    """Send a hint for a round of maintenance, or for one chore of it."""
    _sender().put([MaintenanceHint(args=(chore,) if chore else ())])


def send(hints: Iterable[AnyHint]) -> None:
    """Pass hints to the sending thread."""
    _sender().put(hints)


def flush_hints(timeout: float) -> None:
    """Wait until every hint was sent or dropped, for at most `timeout` seconds."""
    _sender().flush(timeout)


class _Sender:
    """One thread that publishes hints. Hints for people's turns go before all others.

    A hint that has waited for `STALE_AFTER` is dropped, and so are all that wait when the broker refuses one: the sweep
    hints at their sessions again.
    """

    def __init__(self) -> None:
        self._waiting: queue.PriorityQueue[_Waiting] = queue.PriorityQueue(MOST_WAITING)
        self._number = itertools.count()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, hints: Iterable[AnyHint]) -> None:
        """Add hints. Those beyond MOST_WAITING are dropped."""
        with self._start:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rondo-hints", daemon=True)
                self._thread.start()
        with suppress(queue.Full):
            for hint in hints:
                is_persons = isinstance(hint, Hint) and hint.lane == Lane.PEOPLE
                self._waiting.put_nowait((not is_persons, next(self._number), time.monotonic(), hint))

    def flush(self, timeout: float) -> None:
        """Wait until every hint was sent or dropped."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, timeout)

    def _run(self) -> None:
        dropped = 0
        while True:
            _, _, since, hint = self._waiting.get()
            is_stale = time.monotonic() - since > STALE_AFTER
            dropped += is_stale
            if dropped and (not is_stale or self._waiting.empty()):  # one line for all in a row
                log.warning("hints_dropped", dropped=dropped, error="the broker is slow")
                dropped = 0
            try:
                if not is_stale:
                    self._publish(hint)
            finally:
                self._waiting.task_done()

    def _publish(self, hint: AnyHint) -> None:
        app = celery_app()
        try:
            app.send_task(hint.task, hint.args, queue=hint.queue, ignore_result=True, retry=False)
        except Exception as error:  # noqa: BLE001 - the broker's client may raise anything; the sweep hints again
            log_failure(log, "hints_dropped", error, _refusals(app), dropped=1 + self._drop())

    def _drop(self) -> int:
        """Drop all that wait; returns their number."""
        dropped = 0
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
                self._waiting.task_done()
                dropped += 1
        return dropped


def _refusals(app: Any) -> tuple[type[Exception], ...]:
    """The errors of a broker that is away or refuses what it is sent."""
    from kombu.exceptions import KombuError

    link = app.connection_for_write()
    return (KombuError, OSError, *link.connection_errors, *link.channel_errors)


_dispatcher: PerProcess[Callable[[DeliveryLane], None]] = PerProcess()
_process_sender: PerProcess[_Sender] = PerProcess()


def _sender() -> _Sender:
    return _process_sender.get(_Sender)
