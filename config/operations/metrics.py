"""/metrics for Prometheus: gauges, which are counted at each scrape by an index, and stored counters."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
import structlog
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from automations import selectors as automations
from automations.runs.figures import FAILURES_IN_A_ROW, jobs_failing_in_a_row
from config import installation
from config.operations.checks import READINESS_CHECKS, run_checks
from config.operations.counters import counter_families
from interfaces.http.watchers import is_watcher
from sessions_app import metrics as counters
from sessions_app.operations import figures as sessions
from sessions_app.postgres.connection import at_most
from sessions_app.streams.hub import hub

log = structlog.get_logger(__name__)

DATABASE_SECONDS = 0.8  # for the checks of readiness, as in /readyz


class _Collector(Collector):
    """Gauges, read from the database at each scrape, and the stored counters."""

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registration does not query the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All metrics; without the database only what needs none."""
        yield GaugeMetricFamily("rondo_event_subscribers", "Open event streams.", value=hub().subscribers())
        version = GaugeMetricFamily("rondo_build_info", "The version, as a label.", labels=["version"])
        version.add_metric([installation.VERSION], 1)
        yield version
        ready = _readiness()
        yield _by_label("rondo_ready", "Whether a part that turns need works.", "check", ready)
        if not ready["database"]:
            return
        try:
            yield from _gauges()
            yield from counter_families(counters.figures())
        except (Error, psycopg.Error) as error:
            log.warning("metrics_without_database", error=type(error).__name__)


def _readiness() -> dict[str, float]:
    with at_most(DATABASE_SECONDS):
        return {name: float(found.ok) for name, found in run_checks(READINESS_CHECKS).items()}


def _gauges() -> Iterable[Metric]:
    yield _by_label("rondo_open_turns", "Queued and running turns.", "state", sessions.open_turns())
    yield from _queues()
    alive = sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS)
    yield GaugeMetricFamily("rondo_workers", "Live workers.", value=len(alive))
    yield GaugeMetricFamily("rondo_beats", "Beats that listen.", value=automations.beats_seen())
    if (silent := counters.seconds_since_beat()) is not None:
        meaning = "Seconds since a beat last finished a round."
        yield GaugeMetricFamily("rondo_beat_last_round_age_seconds", meaning, value=silent)
    late = automations.seconds_overdue()
    yield GaugeMetricFamily(
        "rondo_overdue_seconds", "Seconds by which the most overdue job or message is late.", value=late
    )
    meaning = f"Automations whose last {FAILURES_IN_A_ROW} attempts failed."
    yield GaugeMetricFamily("rondo_failing_automations", meaning, value=jobs_failing_in_a_row())
    unread = sessions.unread_mail()
    yield GaugeMetricFamily(
        "rondo_mailbox_waiting", "Updates that no turn has shown yet.", value=unread.waiting
    )
    meaning = "Pending, sending and failed deliveries."
    yield _by_label("rondo_open_deliveries", meaning, "state", sessions.open_deliveries())


def _queues() -> Iterable[Metric]:
    """Depth and age of the queue of each lane."""
    waiting = sessions.queued_by_lane()
    depth = {lane: found.count for lane, found in waiting.items()}
    yield _by_label("rondo_queued_turns", "Queued turns.", "lane", depth)
    ages = {lane: found.oldest_seconds for lane, found in waiting.items()}
    meaning = "Seconds that the oldest queued turn has waited."
    yield _by_label("rondo_oldest_queued_turn_seconds", meaning, "lane", ages)


def _by_label(name: str, meaning: str, label: str, values: dict[str, int] | dict[str, float]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


REGISTRY.register(_Collector())


def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics in Prometheus's text format, for watchers."""
    if not is_watcher(request):
        text = "403 Forbidden: see RONDO_WATCHERS and RONDO_WATCHER_TOKEN\n"
        return HttpResponse(text, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
