"""Self-checks of workers, for `manage.py doctor`, which may run with another environment than the workers.

The question is sent as a notification. Each worker writes its findings to its own row, without secrets.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import structlog
from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from sessions_app.models import Worker
from sessions_app.postgres.notify import CONTROL

log = structlog.get_logger(__name__)

QUESTION = "self_check"  # key of the question's id in a notification of CONTROL
PATIENCE = 10.0  # seconds to wait for a worker's answer
LOOK = 0.05  # seconds between two checks for answers


class CheckResult(Protocol):
    """The result of a check: a Finding of sessions_app.operations.doctor."""

    ok: bool
    detail: str
    cure: str


Checks = Mapping[str, Callable[[], CheckResult]]
_sources: list[Callable[[], Checks]] = []
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class WorkerAnswer:
    """What one worker found: `{ok, detail, cure}` by the name of the check. None: it did not answer in time."""

    worker: str
    found: dict[str, dict[str, Any]] | None


def register_checks(checks: Callable[[], Checks]) -> None:
    """Register checks that depend on the environment of the process. `checks` is called for each question."""
    _sources.append(checks)


def answer_soon(worker_id: uuid.UUID, question: object) -> None:
    """Answer in a thread of its own, so that the listener does not wait."""
    arguments = (worker_id, str(question))
    threading.Thread(target=_answer, args=arguments, name="rondo-self-check", daemon=True).start()


def _answer(worker_id: uuid.UUID, question: str) -> None:
    with _one_at_a_time:
        try:
            results = {name: check() for source in _sources for name, check in source().items()}
            found = {
                name: {"ok": result.ok, "detail": result.detail, "cure": result.cure}
                for name, result in results.items()
            }
            Worker.objects.filter(pk=worker_id).update(answered=uuid.UUID(question), findings=found)
        except Exception:  # the database is away, or a bug: the asker sees that this worker did not answer
            log.exception("self_check_failed")
        finally:
            connection.close()


def ask_workers(patience: float = PATIENCE) -> list[WorkerAnswer]:
    """Ask each live worker for its findings, and wait for at most `patience` seconds."""
    question = uuid.uuid4()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CONTROL, json.dumps({QUESTION: str(question)})])
    alive = Q(heartbeat_at__gt=Now() - timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS))
    deadline = time.monotonic() + patience
    while True:
        workers = list(Worker.objects.filter(alive | Q(answered=question)).order_by("host", "pid", "pk"))
        missing = [worker for worker in workers if worker.answered != question]
        if not missing or time.monotonic() >= deadline:
            return [
                WorkerAnswer(worker=str(each), found=each.findings if each.answered == question else None)
                for each in workers
            ]
        time.sleep(LOOK)
