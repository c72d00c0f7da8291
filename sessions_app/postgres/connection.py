"""Database connections whose calls have a time limit.

TCP keepalives and timeouts detect a peer that is gone. They do not detect one that acknowledges packets and never
responds, such as a stopped server or a hanging proxy. So the client checks the time itself: a call without a response
in time closes its connection and raises OperationalError in the calling thread.
"""

from __future__ import annotations

import re
import select
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg
import structlog
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from sessions_app.exceptions import PooledConnection

CLIENT = {  # libpq parameters of every connection; a Unix socket uses the first only
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
SERVER = {  # the same on the server, so that locks of a client that is gone are released
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "client_connection_check_interval": "1s",  # a statement whose client closed the connection ends
}
FORMATS = {  # what is read and written relies on these, and the account or the database may have others
    "datestyle": "ISO,MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "client_encoding": "UTF8",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "default_transaction_isolation": r"read\ committed",
}
ANSWER_SECONDS = 15  # the default limit of a call
CHECK_SECONDS = 2.0  # an idle connection that does not respond for so long is dead
FRESH_SECONDS = 1.0  # a connection that was in use within this time is checked by its socket alone
DIRECT_SECONDS = 8.0  # limit for locks and LISTEN: shorter than the time after which a worker counts as lost
# errors by which the server says that this connection is unusable; psycopg does not class them as OperationalError
USELESS = psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.ReadOnlySqlTransaction
# where the server refuses a prepared statement whose columns a migration has changed; its message may be translated
_STALE_PLAN = "RevalidateCachedQuery"
_WORD = re.compile(r"[a-zA-Z]+")

log = structlog.get_logger(__name__)


@dataclass
class TimeLimit:
    """The time that is left for waiting for the database. A wait of at most `free` seconds does not count."""

    left: float
    free: float

    def spend(self, seconds: float) -> None:
        """Subtract a wait."""
        if seconds > self.free:
            self.left -= seconds


_limit: ContextVar[TimeLimit | None] = ContextVar("database_bound", default=None)
_disabled = threading.Event()


@contextmanager
def time_limit(seconds: float, free: float = 0.0) -> Iterator[None]:
    """Limit the total time that the block waits for the database. Beyond it calls raise OperationalError.

    `free`: waits of at most so many seconds do not count, so that work with many quick statements is not cut off.
    """
    outer = _limit.get()
    given = seconds if outer is None else max(0.0, min(seconds, outer.left))
    inner = TimeLimit(given, free)
    token = _limit.set(inner)
    try:
        yield
    finally:
        _limit.reset(token)
        if outer is not None:
            outer.spend(given - inner.left)


@contextmanager
def no_time_limit() -> Iterator[None]:
    """Suspend an outer `time_limit` for long work; each call still has its own limit."""
    token = _limit.set(None)
    try:
        yield
    finally:
        _limit.reset(token)


def count_wait(seconds: float) -> None:
    """Count a wait for something else, such as a thread, against the limit of `time_limit`."""
    if (limit := _limit.get()) is not None:
        limit.spend(seconds)


def disable_time_limits(**_: Any) -> None:
    """Remove the limits from now on: a migration may rewrite a table."""
    _disabled.set()


def enable_time_limits(**_: Any) -> None:
    """Undo `disable_time_limits`."""
    _disabled.clear()


def server_options(given: str = "", **more: str) -> str:
    """Return the parameter `options` of a connection. Options of its URL come last and win."""
    ours = " ".join(f"-c {name}={value}" for name, value in (SERVER | FORMATS | more).items())
    return f"{ours} {given}".strip()


class Connection(psycopg.Connection[Any]):
    """A connection that ends a call without a response in time. It needs no extra statement and no thread."""

    most_seconds: float | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened_at = monotonic()
        self.returned_at = 0.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait as psycopg does, but with a limit. A caller with its own time limit (`notifies`) keeps it."""
        if timeout is not None or _disabled.is_set():
            return super().wait(gen, interval, timeout)
        longest = self._longest_call()
        limit = _limit.get()
        allowed = longest if limit is None else max(0.0, min(limit.left, longest))
        began = monotonic()
        try:
            return super().wait(gen, interval, allowed)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 - psycopg has no public name for it
            raise self._end_call(gen, monotonic() - began) from None
        except psycopg.Error as error:
            if _makes_useless(error):
                raise self._discard(error) from error
            if self.closed:
                self._drop_idle()
            raise
        finally:
            if limit is not None:
                limit.spend(monotonic() - began)

    def _discard(self, error: psycopg.Error) -> psycopg.OperationalError:
        """Close the connection: the server ended the transaction, has become a standby, or knows an old table."""
        self.close()
        log.warning("database_connection_useless", error=type(error).__name__)
        if not isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout):
            self._drop_idle()
        return psycopg.OperationalError(str(error))

    def _drop_idle(self) -> None:
        """Replace the idle connections of the pool: the fault that broke this one has probably broken them, too."""
        pool = getattr(self, "_pool", None)
        if isinstance(pool, Pool):
            pool.drop_idle(self)

    def _longest_call(self) -> float:
        seconds = float(getattr(settings, "RONDO_DATABASE_SECONDS", ANSWER_SECONDS))
        return seconds if self.most_seconds is None else min(seconds, self.most_seconds)

    def _end_call(self, gen: Any, seconds: float) -> psycopg.OperationalError:
        """Close the connection, since its call got no response in time."""
        call, backend = _kind(gen), self.info.backend_pid
        self.close()
        log.warning(
            "database_call_ended",
            call=call,
            seconds=round(seconds, 1),
            backend=backend,
            thread=threading.current_thread().name,
        )
        if seconds >= CHECK_SECONDS:
            self._drop_idle()
        return psycopg.OperationalError(
            f"PostgreSQL did not respond to {call} within {seconds:.1f} s; the connection was closed"
        )


class DirectConnection(Connection):
    """A connection for locks, LISTEN and NOTIFY, whose statements are quick."""

    most_seconds = DIRECT_SECONDS


def connect_directly(
    url: str, application_name: str = "rondo", server: Mapping[str, str] | None = None
) -> DirectConnection:
    """Open an autocommit connection. Parameters of the URL override the defaults.

    PooledConnection if it goes through a transaction pooler, where neither locks nor LISTEN work.
    """
    given = conninfo_to_dict(url)
    options = server_options(str(given.get("options") or ""), **(server or {}))
    parameters: dict[str, Any] = CLIENT | given
    parameters |= {"options": options, "application_name": application_name}
    connection = DirectConnection.connect(autocommit=True, **parameters)
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        connection.close()
        raise PooledConnection
    return connection


class _LastUsedFirst(deque[Connection]):
    """Idle connections. The pool takes the one used last, whose server process still has its caches and plans."""

    popleft = deque.pop


class Pool(ConnectionPool[Connection]):
    """The pool of `Connection`s that Django uses.

    When one connection fails, those that are as old have probably failed too. They are dropped together.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(connection_class=Connection, check=self._check, **options)
        self._pool = _LastUsedFirst(self._pool)
        self._dropping = threading.Lock()
        self._dropped_at = 0.0

    def getconn(self, timeout: float | None = None) -> Connection:
        """Return a connection that responds. PoolTimeout if there is none in time."""
        limit = _limit.get()
        longest = self.timeout if timeout is None else timeout
        if limit is None:
            return super().getconn(longest)
        left, began = limit.left, monotonic()
        try:
            return super().getconn(max(0.0, min(longest, left)))
        finally:
            limit.left = left  # the check of the connection is part of this wait
            limit.spend(monotonic() - began)

    def putconn(self, conn: Connection) -> None:
        """Take a connection back."""
        conn.returned_at = monotonic()
        super().putconn(conn)

    def drop_idle(self, failed: Connection) -> None:
        """Replace every idle connection, and every connection in use when it is returned."""
        with self._dropping:
            if failed.opened_at <= self._dropped_at:
                return  # it is as old as those that were dropped before
            self._dropped_at = monotonic()
        log.warning("database_connections_dropped")
        self.drain()

    def _check(self, connection: Connection) -> None:
        if monotonic() - connection.returned_at < FRESH_SECONDS and not _has_input(connection):
            return
        try:
            with time_limit(CHECK_SECONDS):
                self.check_connection(connection)
        except psycopg.Error:
            self.drop_idle(connection)
            raise


def _has_input(connection: Connection) -> bool:
    """Whether its socket has something to read, as an idle one has when the server has closed it."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _makes_useless(error: psycopg.Error) -> bool:
    is_feature = isinstance(error, psycopg.errors.FeatureNotSupported)
    return isinstance(error, USELESS) or (is_feature and error.diag.source_function == _STALE_PLAN)


def _kind(gen: Any) -> str:
    """Name the call in one word: a statement's first word, else psycopg's name for it. Never a value."""
    frame = getattr(gen, "gi_frame", None)
    query = frame.f_locals.get("query") if frame is not None else None
    text = query.decode(errors="replace") if isinstance(query, bytes) else query
    word = _WORD.search(text) if isinstance(text, str) else None
    if word:
        return word[0].upper()
    return str(getattr(gen, "__name__", "")).strip("_").removesuffix("_gen") or "a call"
