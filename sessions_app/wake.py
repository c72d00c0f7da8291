"""Hints: "this session has work". Celery carries them; losing one only costs the sweep's delay.

They leave from a thread of their own after the commit, so a hung broker holds up nobody.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from zlib import crc32

import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction

from sessions_app.models import Lane

TASK = "sessions.run"
MAINTENANCE = "rondo.maintain"
POST = "rondo.deliver"
ANY_QUEUE = "turns.any"
POST_QUEUE = "deliveries"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Hint:
    """One hint. `anywhere`: the shard's own workers did not answer, so ask everyone."""

    session_id: uuid.UUID
    lane: str
    anywhere: bool = False

    task = TASK

    @property
    def args(self) -> list[str]:
        """What the task is given."""
        return [str(self.session_id), self.lane]

    @property
    def queue(self) -> str:
        """The Celery queue this hint travels in."""
        if self.anywhere:
            return ANY_QUEUE
        return f"{self.lane}.{shard_of(self.session_id)}"


@dataclass(frozen=True, kw_only=True)
class MaintenanceHint:
    """ "There may be something to prune"; every worker listens."""

    task = MAINTENANCE
    args: tuple[str, ...] = ()
    queue = ANY_QUEUE


@dataclass(frozen=True, kw_only=True)
class PostLane:
    """What is sent one after the other: what goes from one session to one channel.

    As a hint: there may be something to send in it.
    """

    session_id: uuid.UUID
    channel: str

    task = POST
    queue = POST_QUEUE

    @property
    def args(self) -> list[str]:
        """What the task is given."""
        return [str(self.session_id), self.channel]


AnyHint = Hint | MaintenanceHint | PostLane


def shard_of(session_id: uuid.UUID) -> int:
    """A stable shard number of a session, the same in every process and release."""
    return crc32(session_id.bytes) % settings.TURN_SHARDS


def shard_queues() -> list[str]:
    """Every queue that hints travel in."""
    shards = range(settings.TURN_SHARDS)
    return [f"{lane}.{shard}" for lane in Lane.values for shard in shards] + [ANY_QUEUE, POST_QUEUE]


def wake(session_id: uuid.UUID, lane: str) -> None:
    """Hint at a session once the transaction under way has committed; at once if there is none."""
    transaction.on_commit(lambda: send([Hint(session_id=session_id, lane=lane)]), robust=True)


def wake_postman(session_id: uuid.UUID, channel: str) -> None:
    """Hint at a delivery once the transaction under way has committed: this process's own postman, if it has one."""
    lane = PostLane(session_id=session_id, channel=channel)
    transaction.on_commit(lambda: _postmen.get(os.getpid(), _hint)(lane), robust=True)


def employ(take: Callable[[PostLane], None]) -> None:
    """This process has a postman: what it commits needs no hint by the broker, and no slot of the turns."""
    _postmen[os.getpid()] = take


def _hint(lane: PostLane) -> None:
    send([lane])


def ask_for_maintenance() -> None:
    """Hint at a round of maintenance."""
    _sender().put([MaintenanceHint()])


def send(hints: Iterable[AnyHint]) -> None:
    """Hand hints to the sending thread."""
    _sender().put(hints)


def flush(timeout: float) -> None:
    """Wait until every hint was sent or dropped; at most `timeout` seconds."""
    _sender().flush(timeout)


class _Sender:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[AnyHint, None] = {}
        self._busy = False
        self._thread: threading.Thread | None = None

    def put(self, hints: Iterable[AnyHint]) -> None:
        with self._changed:
            self._waiting.update(dict.fromkeys(hints))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rondo-hints", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._busy), timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                batch, self._waiting = list(self._waiting), {}
                self._busy = True
            self._publish(batch)

    def _publish(self, batch: list[AnyHint]) -> None:
        for sent, hint in enumerate(batch):
            try:
                current_app.send_task(
                    hint.task,
                    args=hint.args,
                    queue=hint.queue,
                    retry=False,
                    ignore_result=True,
                )
            except Exception as error:  # noqa: BLE001 - whatever the broker's client raises: the sweep covers the rest
                log.warning("hints_dropped", dropped=len(batch) - sent, error=type(error).__name__)
                return


_postmen: dict[int, Callable[[PostLane], None]] = {}  # by process: a forked child gets its own
_senders: dict[int, _Sender] = {}  # by process: a forked child gets its own
_guard = threading.Lock()


def _sender() -> _Sender:
    with _guard:
        return _senders.setdefault(os.getpid(), _Sender())
