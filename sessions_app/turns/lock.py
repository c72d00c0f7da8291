"""The session lock: only one live worker holds a session.

It has two parts: a dictionary of the sessions that this process holds, because PostgreSQL's advisory locks are
re-entrant on one connection, and advisory locks on one dedicated connection per process. A handle stores the connection
on which its lock was taken, so that an unlock after a reconnection has no effect on the new lock.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog

from agent_core.turn.control import TurnControl
from sessions_app.postgres.connection import connect_directly

log = structlog.get_logger(__name__)

_SERVER = {
    "idle_session_timeout": "60s",  # a stopped process loses its locks after this time
    "synchronous_commit": "off",  # heartbeats need not be on disk
    # heartbeats use this connection, too, and must not wait while a migration has locked a table
    "lock_timeout": "50ms",
}
_TRY = "SELECT pg_try_advisory_lock(%s)"
# a session without work is not locked, so that a late hint costs one statement
_TRY_FOR_WORK = """
SELECT CASE WHEN EXISTS (SELECT 1 FROM sessions_app_turn WHERE session_id = %s AND state = 'queued')
  OR EXISTS (SELECT 1 FROM sessions_app_turn WHERE session_id = %s AND state = 'running')
THEN pg_try_advisory_lock(%s) END"""
_END_OLD = (
    "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
)


def lock_key(session_id: uuid.UUID) -> int:
    """Return the session's advisory lock key: 64 bits, signed."""
    digest = hashlib.blake2b(f"rondo:session:{session_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


@dataclass(eq=False)
class Handle:
    """One held session. `connection` is the one that has its lock; if that is an older one, the lock is lost."""

    session_id: uuid.UUID
    connection: psycopg.Connection[Any] | None = None
    control: TurnControl = field(default_factory=TurnControl)
    turn_id: int | None = None
    claim: uuid.UUID | None = None
    released: bool = False


class SessionLocks:
    """The locks of one process, on one connection. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._held: dict[uuid.UUID, Handle] = {}
        self._guard = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._backend: tuple[Any, ...] | None = None
        self.epoch = 0

    def try_hold(self, session_id: uuid.UUID, *, for_work: bool = False) -> Handle | None:
        """Take the session. None if it is held, here or elsewhere, or if there is no connection.

        `for_work`: also None if the session has no queued or running turn.
        """
        handle = Handle(session_id=session_id)
        with self._guard:
            if session_id in self._held:
                return None
            self._held[session_id] = handle
        if not self._lock(handle, for_work=for_work):
            with self._guard:
                del self._held[session_id]
            return None
        return handle

    def release(self, handle: Handle) -> None:
        """Release the session; a second call does nothing.

        The entry in this process is removed last, so that nobody here takes the session before it is unlocked.
        """
        with self._guard:
            if handle.released:
                return
            handle.released = True
            connection, handle.connection = handle.connection, None
        self._unlock(handle, connection)
        with self._guard:
            if self._held.get(handle.session_id) is handle:
                del self._held[handle.session_id]

    def held(self) -> list[Handle]:
        """Return the sessions that this process holds."""
        with self._guard:
            return list(self._held.values())

    def execute(self, statement: Any, params: Any = None) -> list[Any]:
        """Run a statement on the lock connection, which also shows that it is alive. psycopg.Error if it is lost."""
        connection = self._connection
        if connection is None or connection.closed:
            raise psycopg.OperationalError("no lock connection")
        cursor = connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []

    def reconnect(self) -> None:
        """Open a new connection and take every held lock again. psycopg.Error if that fails."""
        old, self._connection = self._connection, None
        if old is not None:
            old.close()
        self._connection = connect_directly(self._url, "rondo lock", _SERVER)
        self._end_old_backend(self._connection)
        self.epoch += 1
        self.retake()

    def _end_old_backend(self, connection: psycopg.Connection[Any]) -> None:
        """End the old connection on the server, which may still count it as alive, so that its locks are released."""
        if self._backend is not None:
            connection.execute(_END_OLD, self._backend)
        self._backend = connection.execute(
            "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()

    def retake(self) -> None:
        """Take the locks again that were lost with a connection.

        Another process may hold one for a moment, so this is tried again and again. Until then the turn goes on: its
        claim is unchanged, and the fence protects its writes.
        """
        for handle in self.held():
            lost = handle.connection is not self._connection and handle.turn_id is not None
            if lost and not handle.released and not self._lock(handle):
                log.warning("lock_not_retaken", session=str(handle.session_id), turn=handle.turn_id)

    def close(self) -> None:
        """Close the connection, which releases every lock."""
        if self._connection is not None:
            self._connection.close()

    def _lock(self, handle: Handle, *, for_work: bool = False) -> bool:
        connection = self._connection
        if connection is None:
            return False
        try:
            is_locked = _try_lock(connection, handle.session_id, for_work=for_work)
        except psycopg.Error:
            return False
        if not is_locked:
            return False
        with self._guard:
            if not handle.released:
                handle.connection = connection
                return True
        self._unlock(handle, connection)  # it was released while its lock was being taken
        return False

    def _unlock(self, handle: Handle, connection: psycopg.Connection[Any] | None) -> None:
        if connection is None:
            return
        try:
            connection.execute("SELECT pg_advisory_unlock(%s)", [lock_key(handle.session_id)])
        except psycopg.Error:
            log.debug("unlock_on_a_lost_connection", session=str(handle.session_id))  # the lock died with it


def _try_lock(connection: psycopg.Connection[Any], session_id: uuid.UUID, *, for_work: bool) -> bool:
    key = lock_key(session_id)
    if for_work:
        # while the table is locked, the claim finds out whether there is work: it waits on another connection
        with suppress(psycopg.errors.LockNotAvailable):
            return connection.execute(_TRY_FOR_WORK, [session_id, session_id, key]).fetchall() == [(True,)]
    return connection.execute(_TRY, [key]).fetchall() == [(True,)]
