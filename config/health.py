"""What watches the server: /healthz (this process), /readyz (what a turn needs), /metrics (Prometheus)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from celery import current_app
from django.conf import settings
from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from automations import selectors as automations
from config.env import all_queues
from config.errors import unlogged
from sessions_app import selectors as sessions
from sessions_app.stream import hub

log = structlog.get_logger(__name__)

LATE = 60.0  # seconds a job may be overdue before beat counts as missing
BROKER_SECONDS = 1


@dataclass(frozen=True, kw_only=True)
class Check:
    """What one part said; `detail` names the cure when it is not well."""

    ok: bool
    detail: str
    seen: bool = True  # False: nothing is wrong, and nothing shows that it is well

    @property
    def shown(self) -> dict[str, Any]:
        """`{ok, state, detail}`; state is `ok`, `missing` or `unknown`."""
        state = "missing" if not self.ok else "ok" if self.seen else "unknown"
        return {"ok": self.ok, "state": state, "detail": self.detail}


def healthz(_request: HttpRequest) -> HttpResponse:
    """The process answers; nothing else is asked."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(_request: HttpRequest) -> HttpResponse:
    """200 when a message sent now would be answered, else 503; the parts by name."""
    checks = {name: _checked(check) for name, check in CHECKS.items()}
    missing = [f"{name}: {check.detail}" for name, check in checks.items() if not check.ok]
    parts = {name: check.shown for name, check in checks.items()}
    answer = {"ready": not missing, "missing": missing, "checks": parts}
    return unlogged(JsonResponse(answer, status=503 if missing else 200))


def _checked(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (Error, psycopg.Error) as error:
        return Check(ok=False, detail=f"the database does not answer ({type(error).__name__})")


def _database() -> Check:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return Check(ok=True, detail="answers")


def _broker() -> Check:
    try:
        with current_app.connection_for_write(connect_timeout=BROKER_SECONDS) as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises
        return Check(ok=False, detail=f"the broker does not answer ({type(error).__name__})")
    return Check(ok=True, detail="answers")


def _workers() -> Check:
    alive = len(sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS))
    if not alive:
        return Check(ok=False, detail="no worker gives a sign of life; start `celery -A config worker`")
    return Check(ok=True, detail=f"{alive} alive")


def _shards() -> Check:
    read = {queue for worker in sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS) for queue in worker}
    deaf = [queue for queue in all_queues(settings.TURN_SHARDS) if queue not in read]
    if deaf:
        return Check(ok=False, detail=f"nobody reads {', '.join(deaf)}; see TURN_QUEUES")
    return Check(ok=True, detail="every queue is read")


def _beat() -> Check:
    late = automations.seconds_overdue()
    if late > LATE:
        return Check(ok=False, detail=f"a job is {late:.0f} s overdue; start `celery -A config beat`")
    seen = automations.beats_seen()
    if not seen:
        detail = "nothing is overdue, but no beat is seen; start `celery -A config beat`"
        return Check(ok=True, detail=detail, seen=False)
    return Check(ok=True, detail=f"{seen} listening; nothing is overdue")


CHECKS: dict[str, Callable[[], Check]] = {
    "database": _database,
    "broker": _broker,
    "workers": _workers,
    "shards": _shards,
    "beat": _beat,
}


class _Rows(Collector):
    """Gauges that are counted when they are asked for, on indexes."""

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering asks no database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        try:
            yield from self._collect()
        except (Error, psycopg.Error) as error:
            log.warning("metrics_without_database", error=type(error).__name__)

    def _collect(self) -> Iterable[Metric]:
        turns = GaugeMetricFamily("rondo_open_turns", "Turns that wait or run.", labels=["state"])
        for state, count in sessions.open_turns().items():
            turns.add_metric([state], count)
        yield turns
        alive = sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS)
        yield GaugeMetricFamily("rondo_workers", "Workers that give signs of life.", value=len(alive))
        late = automations.seconds_overdue()
        yield GaugeMetricFamily("rondo_overdue_seconds", "How late the latest due job is.", value=late)
        readers = hub().subscribers()
        yield GaugeMetricFamily("rondo_event_subscribers", "Open streams of this process.", value=readers)


REGISTRY.register(_Rows())


def metrics(_request: HttpRequest) -> HttpResponse:
    """Prometheus's text form."""
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
