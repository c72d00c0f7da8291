"""What leaves the process after a commit: notifications for windows, workers and beats.

NOTIFY takes a lock of the whole cluster until its transaction is on disk, so it never stands in a durable
one: this thread sends what has gathered, at most ten times a second, ids and deltas only.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

import psycopg
import structlog
from django.conf import settings

from sessions_app.lock import connect_directly

EVENTS = "rondo_events"
CONTROL = "rondo_control"
JOBS = "rondo_jobs"
INTERVAL = 0.1  # seconds between two sends
PAYLOAD_LIMIT = 7000  # bytes; PostgreSQL refuses 8000

log = structlog.get_logger(__name__)


class Publisher:
    """One thread and one autocommit connection per process. What it cannot send is dropped: readers poll too."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._plain: dict[tuple[str, str], None] = {}
        self._deltas: dict[tuple[str, int, int], list[str]] = {}
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._busy = False

    def notify(self, channel: str, payload: dict[str, Any]) -> None:
        """Send soon; equal payloads that wait together are sent once."""
        with self._changed:
            self._plain[channel, json.dumps(payload, sort_keys=True)] = None
            self._wake()

    def delta(self, session_id: str, turn_id: int, attempt: int, text: str) -> None:
        """Send a piece of the running answer, joined with its neighbours."""
        with self._changed:
            self._deltas.setdefault((session_id, turn_id, attempt), []).append(text)
            self._wake()

    def flush(self, timeout: float) -> None:
        """Wait until all that waits was sent; at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._plain or self._deltas or self._busy), timeout)

    def close(self) -> None:
        """Give the connection up; the next message opens another."""
        if self._connection is not None:
            self._connection.close()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rondo-publish", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _take(self) -> list[tuple[str, str]]:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._plain or self._deltas)
            self._busy = True
            plain, self._plain = list(self._plain), {}
            deltas, self._deltas = self._deltas, {}
        batch = []
        for (session_id, turn_id, attempt), texts in deltas.items():
            # numbered, because PostgreSQL sends equal notifications of one statement once
            for number, piece in enumerate(_pieces("".join(texts))):
                about = {"s": session_id, "turn": turn_id, "attempt": attempt, "n": number}
                batch.append((EVENTS, json.dumps(about | {"text": piece})))
        return batch + plain  # the pieces of an answer go before the news that it has ended

    def _run(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                continue  # pieces without text
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = connect_directly(
                        settings.DATABASE_LOCK_URL, application_name="rondo publish"
                    )
                channels, payloads = zip(*batch, strict=True)
                self._connection.execute(
                    "SELECT pg_notify(c, p) FROM unnest(%s::text[], %s::text[]) AS n(c, p)",
                    [list(channels), list(payloads)],
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread must go on
                log.warning("publish_failed", dropped=len(batch), error=type(error).__name__)
                self.close()
            time.sleep(INTERVAL)


def _pieces(text: str) -> list[str]:
    # JSON may spell one character with 12 bytes (a surrogate pair, escaped)
    size = PAYLOAD_LIMIT // 12
    return [text[start : start + size] for start in range(0, len(text), size)]


_publishers: dict[int, Publisher] = {}  # by process: a forked child gets its own
_guard = threading.Lock()


def publisher() -> Publisher:
    """The process's publisher."""
    with _guard:
        return _publishers.setdefault(os.getpid(), Publisher())
