"""LISTEN on one connection and in one thread per process, for any number of readers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import structlog
from django.conf import settings
from psycopg import sql

from sessions_app.failures import OUTAGES, log_failure
from sessions_app.postgres.direct import connect_directly

log = structlog.get_logger(__name__)

RECONNECT = 1.0  # seconds between two tries
PROBE = 5.0  # seconds between two checks that the server still responds


class Listener:
    """Calls `heard(channel, message)` for each notification. Errors of the callback are logged.

    Notifications may be lost with a connection, so readers poll as well. `lost` is called after each (re)connection.
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
