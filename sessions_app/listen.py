"""LISTEN: one autocommit connection and one thread per process, whatever the number of readers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from django.conf import settings
from psycopg import sql

from sessions_app.lock import connect_directly

log = structlog.get_logger(__name__)

RECONNECT = 1.0  # seconds between two tries


class Listener:
    """Calls `heard(channel, message)` for each notification; never raises for a bad one.

    Notifications may be lost with a connection, so readers poll as well. `lost` is called after each reconnection.
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
        """Begin to listen, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End within a second."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread must go on
                log.warning("listen_lost", error=type(error).__name__)
                self._stopped.wait(RECONNECT)

    def _listen(self) -> None:
        with connect_directly(settings.DATABASE_LOCK_URL, application_name="rondo listen") as connection:
            for channel in self._channels:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            if self._lost:
                self._lost()
            while not self._stopped.is_set():
                for notify in connection.notifies(timeout=1.0):
                    self._hear(notify.channel, notify.payload)

    def _hear(self, channel: str, payload: str) -> None:
        try:
            self._heard(channel, json.loads(payload))
        except Exception:
            log.exception("notification_failed", channel=channel)
