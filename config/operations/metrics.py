"""/metrics for Prometheus: gauges, which are counted at each scrape by an index, and stored counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from automations import selectors as automations
from config.http.watchers import is_watcher
from sessions_app import metrics as counters
from sessions_app.metrics import BUCKETS, EVERYTHING, LABELS, Counted
from sessions_app.operations import figures as sessions
from sessions_app.streams.hub import hub

log = structlog.get_logger(__name__)

COUNTERS = {
    "delivery_failed_count": "Deliveries that failed for good (dead letters).",
    "delivery_sent_count": "Deliveries that a channel accepted.",
    "heartbeat_deliver_count": "Heartbeats whose reply was put into the mailbox.",
    "heartbeat_skipped_due_to_lock": "Heartbeats skipped because their session was busy.",
    "heartbeat_suppress_count": "Heartbeats with nothing to report.",
    "job_session_created": "Sessions created for isolated jobs.",
    "mailbox_deposit_count": "Updates put into mailboxes.",
    "mailbox_drain_count": "Updates that turns have shown and acknowledged.",
    "turn_limit_count": "Turns ended by a limit of their policy, by its code.",
}
LOCK_WAIT = "Milliseconds from the arrival of a turn until a worker began it."


class _Gauges(Collector):
    """Gauges, read from the database at each scrape."""

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registration does not query the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All metrics; none if the database does not answer."""
        try:
            yield from self._gauges()
            yield from _counters()
        except (Error, psycopg.Error) as error:
            log.warning("metrics_without_database", error=type(error).__name__)

    def _gauges(self) -> Iterable[Metric]:
        turns = GaugeMetricFamily("rondo_open_turns", "Queued and running turns.", labels=["state"])
        for state, count in sessions.open_turns().items():
            turns.add_metric([state], count)
        yield turns
        alive = sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS)
        yield GaugeMetricFamily("rondo_workers", "Live workers.", value=len(alive))
        late = automations.seconds_overdue()
        yield GaugeMetricFamily(
            "rondo_overdue_seconds", "Seconds by which the most overdue job or message is late.", value=late
        )
        unread = sessions.unread_mail()
        yield GaugeMetricFamily(
            "rondo_mailbox_waiting", "Updates that no turn has shown yet.", value=unread.waiting
        )
        meaning = "Pending, sending and failed deliveries."
        deliveries = GaugeMetricFamily("rondo_open_deliveries", meaning, labels=["state"])
        for state, count in sessions.open_deliveries().items():
            deliveries.add_metric([state], count)
        yield deliveries
        readers = hub().subscribers()
        yield GaugeMetricFamily(
            "rondo_event_subscribers", "Open event streams of this process.", value=readers
        )


def _counters() -> Iterable[Metric]:
    """All counters, also those at 0, so that graphs begin at 0."""
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


def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics in Prometheus's text format, for watchers."""
    if not is_watcher(request):
        text = "403 Forbidden: see RONDO_WATCHERS and RONDO_WATCHER_TOKEN\n"
        return HttpResponse(text, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
