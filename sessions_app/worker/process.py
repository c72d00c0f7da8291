"""A worker process: session locks, heartbeat, cancel listener and sweep.

The heartbeat runs in a thread of its own. A busy tool may hold the interpreter for seconds, and the worker's turns must
not count as lost because of it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial

import psycopg
import structlog
from django.conf import settings
from django.db import connection

from sessions_app import hints, metrics
from sessions_app.channels import base as channels
from sessions_app.deliveries.dispatcher import DeliveryDispatcher, sweep_deliveries
from sessions_app.hints import flush_hints
from sessions_app.limits import running_turns
from sessions_app.models import ProcessKind, Worker
from sessions_app.operations.processes import Presence
from sessions_app.postgres.notify import CONTROL, Listener, publisher
from sessions_app.retention import maintenance_round
from sessions_app.sessions import delete
from sessions_app.turns.claim import limits_of_silence
from sessions_app.turns.lock import Handle, SessionLocks
from sessions_app.worker.sweep import fail_hung_tools, sweep_turns

log = structlog.get_logger(__name__)

TICK = 0.5  # seconds between two checks of the heartbeat thread
# After a break or with a new connection `steady_since` is set: this worker counts no other as lost for a while (see
# `worker_is_gone`). Returns the slots of the other workers.
_HEARTBEAT = """
INSERT INTO sessions_app_worker AS w (id, host, pid, epoch, shards, slots, steady_since)
VALUES (%(id)s, %(host)s, %(pid)s, %(epoch)s, %(shards)s, %(slots)s, CASE WHEN %(was_away)s THEN clock_timestamp() END)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), epoch = excluded.epoch, steady_since = CASE
  WHEN w.epoch <> excluded.epoch OR w.heartbeat_at < clock_timestamp() - make_interval(secs => %(break_after)s)
  THEN clock_timestamp() ELSE w.steady_since END
RETURNING (SELECT COALESCE(SUM(o.slots), 0) FROM sessions_app_worker o
  WHERE o.id <> w.id AND o.heartbeat_at > clock_timestamp() - make_interval(secs => %(lost_after)s))"""


class WorkerProcess:
    """The worker of this process. Call `start` before the first hint, `begin_stop` when told to stop, and `end` at the
    end.
    """

    def __init__(self, queues: Iterable[str], slots: int) -> None:
        self.id = uuid.uuid4()
        self.locks = SessionLocks(settings.DATABASE_LOCK_URL)
        self._slots = slots
        self.dispatcher = DeliveryDispatcher()
        self.stopping = threading.Event()
        self._ended = threading.Event()
        self._registered = threading.Event()
        self._maintenance = threading.Event()
        self._chores: set[str] = set()  # that were asked for; empty: a round
        self._queues = sorted(queues)
        self._was_refused = False
        self._listener = Listener([CONTROL], self._on_control)
        self._presence = Presence(ProcessKind.WORKER)
        loops: dict[str, Callable[[], None]] = {
            "rondo-heartbeat": self._run_heartbeat,
            "rondo-sweep": self._run_sweeps,
            "rondo-watchdog": self._run_watchdog,
            "rondo-maintenance": self._run_maintenance,
        } | {
            f"rondo-{channel.name}": partial(channel.receive_until, self._ended, self.stopping, TICK)
            for channel in channels.known().values()
            if isinstance(channel, channels.ReceivingChannel)
        }
        self._threads = [
            threading.Thread(target=loop, name=name, daemon=True) for name, loop in loops.items()
        ]

    def start(self) -> None:
        """Start the threads. They connect and register the worker as soon as the database is available."""
        hints.register_dispatcher(self.dispatcher.take)
        self._listener.start()
        self._presence.start(own_id=self.id)
        for thread in self._threads:
            thread.start()

    def wait_until_registered(self, give_up: Callable[[], bool]) -> None:
        """Wait until this worker can run turns; `give_up` is asked between the tries."""
        while not self._registered.wait(TICK) and not give_up():
            log.info("worker_waits_for_database")
        log.info("worker_ready", worker=str(self.id), queues=len(self._queues))

    def begin_stop(self) -> None:
        """Claim no more turns. Every turn that waits for its model is handed back."""
        self.stopping.set()
        for handle in self.locks.held():
            handle.control.stop()

    def end(self) -> None:
        """Stop the threads and delete the worker's row. The locks end with the connection."""
        self._ended.set()
        self.dispatcher.stop()
        self._listener.stop()
        flush_hints(timeout=2.0)
        publisher().flush(timeout=1.0)
        metrics.flush_counters()
        self._presence.stop()
        Worker.objects.filter(pk=self.id).delete()
        connection.close()
        self.locks.close()

    def begin_maintenance(self, chore: str = "") -> None:
        """Have the maintenance thread do a round, or one chore, soon. It takes no slot of the turns."""
        self._chores.add(chore)
        self._maintenance.set()

    def follow(self, handle: Handle) -> None:
        """Stop a turn that begins under this handle while the worker is already stopping."""
        if self.stopping.is_set():
            handle.control.stop()

    def _on_control(self, _channel: str, message: dict[str, object]) -> None:
        for handle in self.locks.held():
            if handle.turn_id is not None and handle.turn_id == message.get("cancel"):
                handle.control.cancel()
        if isinstance(turn := message.get("repeat"), int):
            publisher().repeat(turn)

    def _run_heartbeat(self) -> None:
        next_beat = 0.0
        while not self._ended.is_set():
            try:
                next_beat = self._keep_locks(next_beat)
            except Exception:  # after a bug the worker must not go on without a heartbeat
                log.exception("heartbeat_failed")
            self._ended.wait(TICK)

    def _keep_locks(self, next_beat: float) -> float:
        """Send a heartbeat if it is due, else check the connection. Returns when the next heartbeat is due."""
        try:
            if time.monotonic() < next_beat:
                self.locks.execute("SELECT 1")
                self.locks.retake()
                return next_beat
            self._send_heartbeat()
            return time.monotonic() + settings.RONDO_HEARTBEAT_SECONDS
        except psycopg.errors.LockNotAvailable:
            # the connection works; try again with the next tick
            log.warning("heartbeat_found_a_locked_table")
            return 0.0
        except psycopg.Error:
            self._reconnect()
            return 0.0

    def _send_heartbeat(self) -> None:
        """Update the worker's row, and act on turns of this worker that were cancelled or taken by another worker."""
        [(others,)] = self.locks.execute(
            _HEARTBEAT,
            {
                "id": self.id,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "epoch": self.locks.epoch,
                "shards": psycopg.types.json.Jsonb(self._queues),
                "slots": self._slots,
                "was_away": self._was_refused or self.locks.epoch > 1,
                **limits_of_silence(),
            },
        )
        self._registered.set()
        running_turns.set_fleet_slots(self._slots + int(others))
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
            self._send_heartbeat()
            log.info("lock_connection_made", epoch=self.locks.epoch)
        except (psycopg.Error, OSError) as error:
            self._was_refused = True
            log.warning("lock_connection_lost", error=type(error).__name__)

    def _run_watchdog(self) -> None:
        """Fail turns whose tool hangs. A thread of its own: a lock that the tool holds may block it."""
        while not self._ended.wait(TICK):
            try:
                fail_hung_tools(self.locks, settings.RONDO_TOOL_GRACE_SECONDS)
            except Exception:  # the database is away, or a bug: the loop must go on
                log.exception("watchdog_failed")
            finally:
                connection.close()

    def _run_sweeps(self) -> None:
        while not self._ended.wait(settings.RONDO_SWEEP_SECONDS):
            try:
                sweep_turns(self.id, self.locks.held)
                delete.reopen_abandoned()
            except Exception:  # the database is away, or a bug: the loop must go on
                log.exception("sweep_failed")
            try:
                sweep_deliveries(self.dispatcher.take)
            except Exception:
                log.exception("delivery_sweep_failed")
            finally:
                connection.close()

    def _run_maintenance(self) -> None:
        while not self._ended.is_set():
            if not self._maintenance.wait(TICK):
                continue
            self._maintenance.clear()
            asked, self._chores = self._chores, set()
            for chore in sorted(asked):
                try:
                    maintenance_round.run_hinted_maintenance(self.stopping.is_set, chore)
                except Exception:  # the database is away, or a bug: the loop must go on
                    log.exception("maintenance_failed")
                finally:
                    connection.close()
