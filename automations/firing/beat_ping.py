"""The ping of a working beat, so that a dead man's switch notices when no beat works any more."""

from __future__ import annotations

import ssl
import threading
import time

import structlog
from django.conf import settings

from agent_core.addresses import Reach, host_and_port, parse_web_address
from agent_core.tools.http_request import send_request
from sessions_app.channels.webhook import ping_request

log = structlog.get_logger(__name__)

INTERVAL = 60.0  # seconds between two pings
SECONDS = 10.0  # for the answer


class BeatPing:
    """Pings in a thread of its own, one at a time: no round waits for the receiver."""

    def __init__(self) -> None:
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def step(self) -> None:
        """Ping if it is time. Beat calls this after each round that went well."""
        is_sending = self._thread is not None and self._thread.is_alive()
        if not settings.RONDO_BEAT_PING_URL or time.monotonic() < self._next or is_sending:
            return
        self._next = time.monotonic() + INTERVAL
        self._thread = threading.Thread(target=_send, name="rondo-beat-ping", daemon=True)
        self._thread.start()


def _send() -> None:
    """Send a ping. The operator named the host, so it may have any address. The URL is not logged: it may be secret."""
    try:
        parts = parse_web_address(settings.RONDO_BEAT_PING_URL)
        host, port = host_and_port(parts)
        may = Reach(hosts=frozenset({host.lower()})).address_check(host, port)
        deadline = time.monotonic() + SECONDS
        answer = send_request(ping_request(parts), may, deadline, ssl.create_default_context)
    except Exception as error:  # noqa: BLE001 - whatever it is, beat goes on, and the receiver notices
        log.warning("beat_ping_failed", error=type(error).__name__)
        return
    if not 200 <= answer.status < 300:
        log.warning("beat_ping_failed", status=answer.status)
