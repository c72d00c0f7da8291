"""A worker process: its locks, its sign of life, its ear for cancellations, its sweep.

The heartbeat has an OS thread of its own: one busy tool holds the interpreter for seconds, and five hundred turns
must not be taken for dead over it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable

import psycopg
import structlog
from django.conf import settings
from django.db import connection

from sessions_app import delete, maintain, metrics, overdue, recover, wake
from sessions_app.listen import Listener
from sessions_app.lock import Handle, SessionLocks
from sessions_app.models import Lane, Worker
from sessions_app.postman import Postman
from sessions_app.publish import CONTROL, publisher
from sessions_app.wake import Hint, flush, send

log = structlog.get_logger(__name__)

TICK = 0.5  # seconds between two looks of the heartbeat thread
MOST_FORWARDED = 20  # parked hints of one tick
AUTO_SHARE = 0.8  # of the slots, at most, for automations


class WorkerProcess:
    """One per process. `start` before the first hint, `stop` when the process is told to end."""

    def __init__(self, queues: Iterable[str], slots: int) -> None:
        self.id = uuid.uuid4()
        self.locks = SessionLocks(settings.DATABASE_LOCK_URL)
        self.auto_slots = threading.BoundedSemaphore(max(1, int(slots * AUTO_SHARE)))
        self.postman = Postman()
        self.stopping = threading.Event()
        self._ended = threading.Event()
        self._signed_in = threading.Event()
        self._maintenance = threading.Event()
        self._parked: dict[uuid.UUID, None] = {}
        self._parking = threading.Lock()
        self._queues = sorted(queues)
        self._listener = Listener([CONTROL], self._heard)
        self._threads = [
            threading.Thread(target=self._live, name="rondo-heartbeat", daemon=True),
            threading.Thread(target=self._sweep, name="rondo-sweep", daemon=True),
            threading.Thread(target=self._watch, name="rondo-watchdog", daemon=True),
            threading.Thread(target=self._maintain, name="rondo-maintenance", daemon=True),
        ]

    def start(self) -> None:
        """Start the threads. They connect and sign in as soon as the database lets them."""
        wake.employ(self.postman.take)
        self._listener.start()
        for thread in self._threads:
            thread.start()

    def wait_until_signed_in(self, give_up: Callable[[], bool]) -> None:
        """Hold the process's first hints back until it could run them."""
        while not self._signed_in.wait(TICK) and not give_up():
            log.info("worker_waits_for_database")
        log.info("worker_ready", worker=str(self.id), queues=len(self._queues))

    def begin_stop(self) -> None:
        """Claim nothing more; every turn that waits for its model is handed back."""
        self.stopping.set()
        for handle in self.locks.held():
            handle.control.stop()

    def end(self) -> None:
        """Sign out. What is still held goes with the connection."""
        self._ended.set()
        self.postman.stop()
        self._listener.stop()
        flush(timeout=2.0)
        publisher().flush(timeout=1.0)
        metrics.flush()
        Worker.objects.filter(pk=self.id).delete()
        connection.close()
        self.locks.close()

    def park(self, session_id: uuid.UUID) -> None:
        """An automation's hint that found no slot: kept until one is free, and offered to the other workers."""
        with self._parking:
            self._parked[session_id] = None

    def unpark(self) -> uuid.UUID | None:
        """The session that has been parked longest, if any."""
        with self._parking:
            session_id = next(iter(self._parked), None)
            if session_id is not None:
                del self._parked[session_id]
        return session_id

    def begin_maintenance(self) -> None:
        """Do a round soon, in a thread of its own: it takes no slot from the turns."""
        self._maintenance.set()

    def _forward_parked(self) -> None:
        """Ask everyone to take what still found no slot here. What comes back is parked again, until the next tick."""
        with self._parking:
            waiting = list(self._parked)[:MOST_FORWARDED]
            for session_id in waiting:
                del self._parked[session_id]
        send(Hint(session_id=session_id, lane=Lane.AUTO, anywhere=True) for session_id in waiting)

    def follow(self, handle: Handle) -> None:
        """A turn begins under this handle: a stop that came meanwhile is for it, too."""
        if self.stopping.is_set():
            handle.control.stop()

    def _heard(self, _channel: str, message: dict[str, object]) -> None:
        for handle in self.locks.held():
            if handle.turn_id is not None and handle.turn_id == message.get("cancel"):
                handle.control.cancel()

    def _live(self) -> None:
        next_beat = 0.0
        while not self._ended.is_set():
            try:
                next_beat = self._look_after_locks(next_beat)
                self._forward_parked()
            except Exception:  # a bug here must not make the process a dead one that still takes hints
                log.exception("heartbeat_failed")
            self._ended.wait(TICK)

    def _look_after_locks(self, next_beat: float) -> float:
        """Give a sign of life when it is time, else see that the connection stands; when the next sign is due."""
        try:
            if time.monotonic() < next_beat:
                self.locks.execute("SELECT 1")
                self.locks.retake()
                return next_beat
            self._beat()
            self._signed_in.set()
            return time.monotonic() + settings.RONDO_HEARTBEAT_SECONDS
        except psycopg.Error:
            self._reconnect()
            return 0.0

    def _beat(self) -> None:
        self.locks.execute(
            "INSERT INTO sessions_app_worker AS w (id, host, pid, epoch, shards) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), epoch = excluded.epoch",
            [
                self.id,
                socket.gethostname(),
                os.getpid(),
                self.locks.epoch,
                psycopg.types.json.Jsonb(self._queues),
            ],
        )
        running = {handle.turn_id: handle for handle in self.locks.held() if handle.turn_id is not None}
        if not running:
            return
        rows = self.locks.execute(
            "SELECT id, claim, state, cancel_requested_at IS NOT NULL FROM sessions_app_turn WHERE id = ANY(%s)",
            [list(running)],
        )
        found = {row[0]: row[1:] for row in rows}
        for turn_id, handle in running.items():
            claim, state, cancelled = found.get(turn_id, (None, "gone", False))
            if state == "gone" or (state == "running" and claim != handle.claim):
                handle.control.lose()
            elif cancelled:
                handle.control.cancel()

    def _reconnect(self) -> None:
        try:
            self.locks.reconnect()
            self._beat()
            self._signed_in.set()
            log.info("lock_connection_made", epoch=self.locks.epoch)
        except (psycopg.Error, OSError) as error:
            log.warning("lock_connection_lost", error=type(error).__name__)

    def _watch(self) -> None:
        """A thread of its own: what a hung tool holds may block the one who ends its turn."""
        while not self._ended.wait(TICK):
            try:
                recover.fail_hung_tools(self.locks, settings.RONDO_TOOL_GRACE_SECONDS)
            except Exception:  # the database is away, or a bug: the next look must come all the same
                log.exception("watchdog_failed")
            finally:
                connection.close()

    def _sweep(self) -> None:
        while not self._ended.wait(settings.RONDO_SWEEP_SECONDS):
            try:
                recover.sweep(self.id, self.locks.held)
                delete.reopen_abandoned()
            except Exception:  # the database is away, or a bug: the next sweep must come all the same
                log.exception("sweep_failed")
            self._sweep_deliveries()

    def _sweep_deliveries(self) -> None:
        try:
            overdue.sweep(self.postman.take)
        except Exception:
            log.exception("delivery_sweep_failed")
        finally:
            connection.close()

    def _maintain(self) -> None:
        while not self._ended.is_set():
            if not self._maintenance.wait(TICK):
                continue
            self._maintenance.clear()
            try:
                maintain.hinted(self.stopping.is_set)
            except Exception:  # the database is away, or a bug: the next hint must find us all the same
                log.exception("maintenance_failed")
            finally:
                connection.close()
