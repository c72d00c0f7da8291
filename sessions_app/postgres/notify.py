"""LISTEN and NOTIFY: notifications for windows, workers and beats, sent after a commit.

NOTIFY takes a cluster-wide lock until its transaction is on disk, so it is never part of a durable transaction. One
thread sends the collected notifications at most ten times a second. They contain ids and deltas only.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import psycopg
import structlog
from django.conf import settings
from psycopg import sql

from agent_core.process import PerProcess
from sessions_app.failures import OUTAGES, log_failure
from sessions_app.postgres.connection import connect_directly

EVENTS = "rondo_events"
CONTROL = "rondo_control"
JOBS = "rondo_jobs"
TEXT, THOUGHT = "text", "thought"  # kinds of pieces
_encode = json.JSONEncoder(sort_keys=True).encode  # `dumps` makes an encoder for each call
INTERVAL = 0.1  # seconds between two sends
LAST_SECONDS = 2.0  # that the end of a process waits for the last send
PAYLOAD_LIMIT = 7000  # bytes; PostgreSQL rejects 8000

Batch = list[tuple[str, str]]  # channel, payload

log = structlog.get_logger(__name__)


class Try(NamedTuple):
    """One try of a turn's model call: the turn's attempt, the number of the call and of the try, each from 1.

    `source_type` and `run_id` are those of the turn's stored events.
    """

    s: str  # the session's id
    turn: int
    attempt: int
    step: int = 1
    number: int = 1
    source_type: str = ""
    run_id: str = ""


class Publisher:
    """One thread and one autocommit connection per process. It drops what it cannot send, since readers poll too.

    It tries twice, since the first try may only find that the server has ended the connection.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._plain: dict[tuple[str, str], None] = {}
        self._live: dict[tuple[Try, str], list[str] | dict[str, Any]] = {}
        self._texts: dict[int, dict[Try, str]] = {}  # by running turn: what was sent of its answer
        self._ended: set[int] = set()
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._sending = threading.RLock()  # a connection that is closed while it sends ends the process
        self._busy = False

    def notify(self, channel: str, *payloads: dict[str, Any]) -> None:
        """Send payloads soon; equal waiting payloads are sent once."""
        texts = [_encode(payload) for payload in payloads]
        with self._changed:
            self._plain |= dict.fromkeys((channel, text) for text in texts)
            self._wake()

    def delta(self, of: Try, text: str, kind: str = TEXT) -> None:
        """Send a piece of the running answer, or of its reasoning; waiting pieces of the same try are joined."""
        with self._changed:
            if kind == TEXT:
                texts = self._texts.setdefault(of.turn, {})
                texts[of] = texts.get(of, "") + text
            pieces = self._live.setdefault((of, kind), [])
            if isinstance(pieces, list):
                pieces.append(text)
            self._wake()

    def retrying(self, of: Try, content: dict[str, Any]) -> None:
        """Send that a try was aborted and another follows, after the pieces of the aborted one."""
        with self._changed:
            self._live[of, "retrying"] = content
            self._wake()

    def repeat(self, turn: int) -> None:
        """Send the whole text of a running answer again, for processes that lack a part of it."""
        with self._changed:
            if texts := self._texts.get(turn):
                later = {
                    key: said for key, said in self._live.items() if key[0] not in texts or key[1] != TEXT
                }
                self._live = {(of, TEXT): [text] for of, text in texts.items()}
                self._live |= later
                self._wake()

    def forget(self, turn: int) -> None:
        """The turn has ended: once its last pieces are sent, its text is not repeated any more."""
        with self._changed:
            if turn in self._texts:
                self._ended.add(turn)
                self._wake()

    def flush(self, timeout: float) -> None:
        """Wait until everything was sent, for at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._plain or self._live or self._busy), timeout)

    def close(self) -> None:
        """Close the connection once it has sent; the next message opens another."""
        with self._sending:
            if self._connection is not None:
                self._connection.close()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rondo-publish", daemon=True)
            self._thread.start()
            atexit.register(self.flush, LAST_SECONDS)  # a command ends sooner than its notification is sent
        self._changed.notify_all()

    def _take(self) -> tuple[Batch, Batch]:
        """Wait for something to send: pieces of answers, and the other notifications."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._plain or self._live or self._ended)
            self._busy = True
            plain, self._plain = list(self._plain), {}
            live, self._live = self._live, {}
            lengths = {of: len(text) for texts in self._texts.values() for of, text in texts.items()}
            self._texts = {turn: texts for turn, texts in self._texts.items() if turn not in self._ended}
            self._ended = set()
        pieces = []
        for (of, kind), said in live.items():
            if isinstance(said, dict):
                pieces.append((EVENTS, json.dumps(of._asdict() | {kind: said})))
                continue
            # with its place in the text: PostgreSQL sends equal notifications of one statement only once
            text = "".join(said)
            at = lengths[of] - len(text) if kind == TEXT else 0
            for place, piece in _pieces(text):
                pieces.append((EVENTS, json.dumps(of._asdict() | {"at": at + place, kind: piece})))
        return pieces, plain

    def _run(self) -> None:
        while True:
            pieces, plain = self._take()
            if not (pieces or plain):
                continue  # there were only empty pieces
            # the pieces of an answer before the notification that it has ended
            if not self._send([*pieces, *plain]) and plain:
                # the server may have ended the connection long ago; twice is harmless, but not for pieces
                self._send(plain)
            time.sleep(INTERVAL)

    def _send(self, batch: Batch) -> bool:
        """Whether they were sent. If not, the next ones get another connection."""
        try:
            with self._sending:
                if self._connection is None or self._connection.closed:
                    self._connection = connect_directly(settings.DATABASE_LOCK_URL, "rondo publish")
                channels, payloads = zip(*batch, strict=True)
                self._connection.execute(
                    "SELECT pg_notify(c, p) FROM unnest(%s::text[], %s::text[]) AS n(c, p)",
                    [list(channels), list(payloads)],
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread must go on
            log_failure(log, "publish_failed", error, OUTAGES, dropped=len(batch))
            self.close()
            return False
        return True


def _pieces(text: str) -> list[tuple[int, str]]:
    # JSON may need 12 bytes for one character (an escaped surrogate pair)
    size = PAYLOAD_LIMIT // 12
    return [(start, text[start : start + size]) for start in range(0, len(text), size)]


_publisher: PerProcess[Publisher] = PerProcess()


def publisher() -> Publisher:
    """Return the process's publisher."""
    return _publisher.get(Publisher)


RECONNECT = 1.0  # seconds between two tries
PROBE = 5.0  # seconds between two checks that the server still responds


class Listener:
    """Calls `heard(channel, message)` for each notification. Errors of the callback are logged.

    One connection and one thread serve all readers of a process. Notifications may be lost with a connection, so
    readers poll as well. `lost` is called after each (re)connection.
    """

    def __init__(
        self,
        channels: Iterable[str],
        heard: Callable[[str, dict[str, Any]], None],
        lost: Callable[[], None] | None = None,
    ) -> None:
        self._channels = list(channels)
        self._heard = heard
        self._lost = lost
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rondo-listen", daemon=True)

    def start(self) -> None:
        """Start the listening thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; it ends within a second."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread must go on
                log_failure(log, "listen_lost", error, OUTAGES)
                self._stopped.wait(RECONNECT)

    def _listen(self) -> None:
        with connect_directly(settings.DATABASE_LOCK_URL, "rondo listen") as connection:
            self._send_listen(connection)
            if self._lost:
                self._lost()
            probe_at = time.monotonic() + PROBE
            while not self._stopped.is_set():
                for notify in connection.notifies(timeout=1.0):
                    self._hear(notify.channel, notify.payload)
                if time.monotonic() > probe_at:
                    self._send_listen(connection)
                    probe_at = time.monotonic() + PROBE

    def _send_listen(self, connection: psycopg.Connection[Any]) -> None:
        """Send LISTEN. Repeating it changes nothing, but fails if the server does not respond."""
        for channel in self._channels:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    def _hear(self, channel: str, payload: str) -> None:
        try:
            self._heard(channel, json.loads(payload))
        except Exception:
            log.exception("notification_failed", channel=channel)
