"""The session lock: one live worker per session.

In front stands a guard of the sessions this process holds, because PostgreSQL's session locks are re-entrant on
one connection. Behind it, advisory locks on one dedicated connection per process. A handle remembers the very
connection its lock was taken on (the epoch): an unlock of an older one does nothing.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog

from agent_core.control import TurnControl
from sessions_app.exceptions import PooledConnection

log = structlog.get_logger(__name__)

_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "idle_session_timeout": "60s",  # a stopped process loses its locks: the server's own lease
        "client_connection_check_interval": "1s",
        "synchronous_commit": "off",  # heartbeats need not be on disk
        "lock_timeout": "5s",
    }.items()
)


def lock_key(session_id: uuid.UUID) -> int:
    """The session's advisory lock key: 64 bits, signed."""
    digest = hashlib.blake2b(f"rondo:session:{session_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def connect_directly(url: str, **options: Any) -> psycopg.Connection[Any]:
    """An autocommit connection for locks or LISTEN. Refuses a transaction pooler, where neither works."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=5,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=15_000,
        **options,
    )
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        connection.close()
        raise PooledConnection
    return connection


@dataclass(eq=False)
class Handle:
    """One held session. `connection` is where its lock was taken; the lock is lost when that is an older one."""

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
        self.epoch = 0

    def try_hold(self, session_id: uuid.UUID) -> Handle | None:
        """Take the session, or None: it is held, here or elsewhere, or there is no connection now."""
        handle = Handle(session_id=session_id)
        with self._guard:
            if session_id in self._held:
                return None
            self._held[session_id] = handle
        if not self._lock(handle):
            with self._guard:
                del self._held[session_id]
            return None
        return handle

    def release(self, handle: Handle) -> None:
        """Give the session free; twice does nothing.

        The guard's entry goes last: until then nobody in this process may take the session.
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
        """What this process holds now."""
        with self._guard:
            return list(self._held.values())

    def execute(self, statement: Any, params: Any = None) -> list[Any]:
        """Run a statement on the lock connection; psycopg.Error when it is lost. Proves the lease alive."""
        connection = self._connection
        if connection is None or connection.closed:
            raise psycopg.OperationalError("no lock connection")
        cursor = connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []

    def reconnect(self) -> None:
        """Open a new connection and take every held lock again; psycopg.Error when it cannot be had."""
        old, self._connection = self._connection, None
        if old is not None:
            old.close()
        self._connection = connect_directly(self._url, options=_OPTIONS, application_name="rondo lock")
        self.epoch += 1
        self.retake()

    def retake(self) -> None:
        """Take again what was lost with a connection.

        Somebody who only looked may hold a lock for a moment, so this is tried at every heartbeat. Until it
        works the turn goes on: its claim is still its own, and the fence decides.
        """
        for handle in self.held():
            lost = handle.connection is not self._connection and handle.turn_id is not None
            if lost and not handle.released and not self._lock(handle):
                log.warning("lock_not_retaken", session=str(handle.session_id), turn=handle.turn_id)

    def close(self) -> None:
        """Close the connection; every lock goes with it."""
        if self._connection is not None:
            self._connection.close()

    def _lock(self, handle: Handle) -> bool:
        connection = self._connection
        if connection is None:
            return False
        try:
            row = connection.execute(
                "SELECT pg_try_advisory_lock(%s)", [lock_key(handle.session_id)]
            ).fetchone()
        except psycopg.Error:
            return False
        if row is None or not row[0]:
            return False
        with self._guard:
            if not handle.released:
                handle.connection = connection
                return True
        self._unlock(handle, connection)  # it was released while we took it again
        return False

    def _unlock(self, handle: Handle, connection: psycopg.Connection[Any] | None) -> None:
        if connection is None:
            return
        try:
            connection.execute("SELECT pg_advisory_unlock(%s)", [lock_key(handle.session_id)])
        except psycopg.Error:
            log.debug("unlock_on_a_lost_connection", session=str(handle.session_id))  # the lock died with it
