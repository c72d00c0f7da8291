"""Each web process, worker and beat reports what it is and where it runs, for `status` on any machine."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import connection
from django.db.models.functions import Greatest, Now

from sessions_app.failures import OUTAGES, log_failure
from sessions_app.models import Process, ProcessKind

log = structlog.get_logger(__name__)

FORGOTTEN_AFTER = timedelta(hours=24)  # without a report, after which a process is removed from the table
STOP_SECONDS = 1.0  # longest wait for a report that is under way when the process ends


class Presence:
    """Reports this process every RONDO_HEARTBEAT_SECONDS, from a thread of its own, until it stops."""

    def __init__(self, kind: ProcessKind) -> None:
        self._kind = kind
        self._id = uuid.uuid4()
        self._row: dict[str, Any] = {}
        self._ended = threading.Event()
        self._reporting = threading.Lock()
        self._was_refused = False

    def start(self, *, own_id: uuid.UUID | None = None, address: str = "") -> None:
        """Begin to report. The database may be away: the first report is then made when it is back."""
        self._id = own_id or uuid.uuid4()
        self._row = {
            "id": self._id,
            "kind": self._kind.value,
            "host": socket.gethostname()[:200],
            "pid": os.getpid(),
            "address": address[:300],
            "version": settings.VERSION,
        }
        threading.Thread(target=self._run, name="rondo-presence", daemon=True).start()

    def stop(self) -> None:
        """Remove the process from the table. If that fails, it is forgotten as one that was killed."""
        self._ended.set()
        if not self._reporting.acquire(timeout=STOP_SECONDS):
            return
        try:
            Process.objects.filter(pk=self._id).delete()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process must end
            log_failure(log, "process_not_removed", error, OUTAGES)
        finally:
            connection.close()
            self._reporting.release()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._report()
            self._ended.wait(settings.RONDO_HEARTBEAT_SECONDS)

    def _report(self) -> None:
        with self._reporting:
            if self._ended.is_set():
                return  # its row has been removed
            try:
                Process.objects.filter(seen_at__lt=Now() - FORGOTTEN_AFTER).delete()
                mine = Process.objects.filter(pk=self._id)
                if not mine.update(seen_at=Greatest("started_at", Now())):
                    Process.objects.create(**self._row)
                self._was_refused = False
            except Exception as error:  # noqa: BLE001 - the database is away, or a bug: the process must go on
                if not self._was_refused:
                    log_failure(log, "process_not_reported", error, OUTAGES)
                self._was_refused = True
            finally:
                connection.close()
