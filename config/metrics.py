"""/metrics, for Prometheus: gauges counted on indexes when they are asked for, and the stored counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from automations import selectors as automations
from sessions_app import metrics as counters
from sessions_app import operator_reads as sessions
from sessions_app.metrics import BUCKETS, EVERYTHING, LABELS, Counted
from sessions_app.stream import hub

log = structlog.get_logger(__name__)

COUNTERS = {
    "delivery_failed_count": "Deliveries that were given up: dead letters.",
    "delivery_sent_count": "Deliveries that a channel took.",
    "heartbeat_deliver_count": "Heartbeats whose reply went to the mailbox.",
    "heartbeat_skipped_due_to_lock": "Heartbeats that were skipped because their session was busy.",
    "heartbeat_suppress_count": "Heartbeats with nothing to say.",
    "job_session_created": "Sessions made for isolated jobs.",
    "mailbox_deposit_count": "Updates deposited in mailboxes.",
    "mailbox_drain_count": "Updates that turns showed and acknowledged.",
    "turn_limit_count": "Turns that a limit of their policy ended, by its code.",
}
LOCK_WAIT = "Milliseconds from a turn's arrival until a worker took it up."


class _Gauges(Collector):
    """What is so now."""

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering asks no database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        try:
            yield from self._gauges()
            yield from _counters()
        except (Error, psycopg.Error) as error:
            log.warning("metrics_without_database", error=type(error).__name__)

    def _gauges(self) -> Iterable[Metric]:
        turns = GaugeMetricFamily("rondo_open_turns", "Turns that wait or run.", labels=["state"])
        for state, count in sessions.open_turns().items():
            turns.add_metric([state], count)
        yield turns
        alive = sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS)
        yield GaugeMetricFamily("rondo_workers", "Workers that give signs of life.", value=len(alive))
        late = automations.seconds_overdue()
        yield GaugeMetricFamily(
            "rondo_overdue_seconds", "How late the latest due job or message is.", value=late
        )
        unread = sessions.unread_mail()
        yield GaugeMetricFamily(
            "rondo_mailbox_waiting", "Updates that no turn has shown.", value=unread.waiting
        )
        letters = "Deliveries on the way and given up."
        deliveries = GaugeMetricFamily("rondo_open_deliveries", letters, labels=["state"])
        for state, count in sessions.open_deliveries().items():
            deliveries.add_metric([state], count)
        yield deliveries
        readers = hub().subscribers()
        yield GaugeMetricFamily("rondo_event_subscribers", "Open streams of this process.", value=readers)


def _counters() -> Iterable[Metric]:
    """Every counter, also those that stand at nothing yet: a graph of them begins at 0."""
    found: dict[str, dict[tuple[str, ...], int]] = {}
    for figure in counters.figures():
        found.setdefault(figure.name, {})[tuple(figure.labels.values())] = figure.value
    for name, meaning in COUNTERS.items():
        labels = LABELS.get(Counted(name), ())
        family = CounterMetricFamily(f"rondo_{name}", meaning, labels=labels)
        for values, value in found.get(name, {} if labels else {(): 0}).items():
            family.add_metric(values, value)
        yield family
    yield _lock_wait(found)


def _lock_wait(found: dict[str, Any]) -> Metric:
    stored, so_far, buckets = found.get(Counted.LOCK_WAIT_BUCKET, {}), 0, []
    for bound in [*map(str, BUCKETS), EVERYTHING]:
        so_far += stored.get((bound,), 0)
        buckets.append((bound, float(so_far)))
    total = found.get(Counted.LOCK_WAIT_SUM, {}).get((), 0)
    return HistogramMetricFamily("rondo_lock_wait_ms", LOCK_WAIT, buckets=buckets, sum_value=total)


REGISTRY.register(_Gauges())


def metrics(_request: HttpRequest) -> HttpResponse:
    """Prometheus's text form."""
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
