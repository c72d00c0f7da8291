"""/metrics for Prometheus: gauges, which are counted at each scrape by an index, and stored counters.

A counter whose older name broke Prometheus's conventions is given under both names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import psycopg
import structlog
from django.db import Error
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from automations import selectors as automations
from automations.runs.figures import FAILURES_IN_A_ROW, jobs_failing_in_a_row
from config import installation
from config.operations.doctor import check_readiness
from interfaces.http.watchers import is_watcher
from sessions_app import metrics as counters
from sessions_app.channels.base import all_names
from sessions_app.metrics import Counted
from sessions_app.models import Counter, Lane
from sessions_app.operations import figures as sessions
from sessions_app.spending.caps import PERIODS, SCOPES
from sessions_app.streams.hub import hub

log = structlog.get_logger(__name__)

COUNTERS = {
    "beat_rounds": "Rounds that beats finished.",
    "cap_refusals": "Model calls that a cap on tokens or money refused, by whose cap it is and its period.",
    "delivery_attempts_failed": "Attempts to deliver that failed, by channel.",
    "delivery_failed_count": "Deliveries that failed for good (dead letters).",
    "delivery_sent_count": "Deliveries that a channel accepted.",
    "errors": "Errors that processes logged, by the name of the line.",
    "heartbeat_deliver_count": "Heartbeats whose reply was put into the mailbox.",
    "heartbeat_skipped_due_to_lock": "Heartbeats skipped because their session was busy.",
    "heartbeat_suppress_count": "Heartbeats with nothing to report.",
    "job_session_created": "Sessions created for isolated jobs.",
    "mailbox_deposit_count": "Updates put into mailboxes.",
    "mailbox_drain_count": "Updates that turns have shown and acknowledged.",
    "queue_full": "Messages refused and slots skipped because a queue was full.",
    "run_attempts_failed": "Attempts of runs that failed, by error code.",
    "runs": "Runs that ended, by outcome and reason.",
    "spent_micro_usd": "Micro-dollars that turns cost, as far as their models have a price.",
    "tokens": "Tokens that turns used.",
    "turn_limit_count": "Turns ended by a limit of their policy, by its code.",
    "turns": "Turns that a worker ended, by lane, outcome and error code.",
}
# values of labels that are known before anything was counted: their counters begin at 0
KNOWN: dict[Counted, Sequence[tuple[str, ...]]] = {
    Counted.CAP_REFUSAL: [(scope, period) for scope in SCOPES for period in PERIODS],
    Counted.QUEUE_FULL: [(queue,) for queue in counters.FULL_QUEUES],
    Counted.RUN: [("succeeded", "none")],
    Counted.TOKENS: [(kind,) for kind in counters.TOKENS],
    Counted.TURN: [(lane, "succeeded", "none") for lane in Lane.values],
    Counted.TURN_LIMIT: [(code,) for code in sorted(counters.TURN_LIMITS)],
}
WAIT = "{} from the arrival of a turn until a worker began it."
DURATION = "Seconds that a worker had a turn until it ended, by lane."
_Found = Mapping[str, Mapping[tuple[str, ...], int]]


def _counter_families(figures: Iterable[Counter]) -> Iterable[Metric]:
    """All counters, also those at 0, so that graphs begin at 0 and an increase from nothing is seen."""
    found: dict[str, dict[tuple[str, ...], int]] = {}
    known = {str(name): labels for name, labels in counters.LABELS.items()}
    for figure in figures:
        labels = known.get(figure.name, ())
        found.setdefault(figure.name, {})[tuple(figure.labels.get(name, "") for name in labels)] = (
            figure.value
        )
    for name, meaning in COUNTERS.items():
        labels = counters.LABELS.get(Counted(name), ())
        family = CounterMetricFamily(f"rondo_{name}", meaning, labels=labels)
        begun = dict.fromkeys(_known(Counted(name)) if labels else [()], 0)
        for values, value in (begun | found.get(name, {})).items():
            family.add_metric(values, value)
        yield family
    ended = {"sent": Counted.DELIVERY_SENT, "failed": Counted.DELIVERY_FAILED}
    deliveries = {state: found.get(name, {}).get((), 0) for state, name in ended.items()}
    limits = {
        code: found.get(Counted.TURN_LIMIT, {}).get((code,), 0) for code in sorted(counters.TURN_LIMITS)
    }
    for name, meaning, label, counts in (
        ("deliveries", "Deliveries that ended, by state.", "state", deliveries),
        ("turn_limits_reached", COUNTERS["turn_limit_count"], "limit", limits),
    ):
        family = CounterMetricFamily(f"rondo_{name}", meaning, labels=[label])
        for each, count in counts.items():
            family.add_metric([each], count)
        yield family
    yield _wait(found, "rondo_lock_wait_ms", "Milliseconds", 1)
    yield _wait(found, "rondo_turn_wait_seconds", "Seconds", 1000)
    yield _duration(found)


def _known(counted: Counted) -> Iterable[tuple[str, ...]]:
    if counted is Counted.DELIVERY_ATTEMPT_FAILED:
        return [(channel,) for channel in sorted(all_names())]  # plugins may have registered more
    return KNOWN.get(counted, [])


def _wait(found: _Found, name: str, unit: str, divisor: int) -> Metric:
    stored = {bound: count for (bound,), count in found.get(Counted.LOCK_WAIT_BUCKET, {}).items()}
    total = found.get(Counted.LOCK_WAIT_SUM, {}).get((), 0)
    family = HistogramMetricFamily(name, WAIT.format(unit))
    family.add_metric([], buckets=_buckets(stored, counters.BUCKETS, divisor), sum_value=total / divisor)
    return family


def _duration(found: _Found) -> Metric:
    family = HistogramMetricFamily("rondo_turn_duration_seconds", DURATION, labels=["lane"])
    counts, sums = found.get(Counted.TURN_DURATION_BUCKET, {}), found.get(Counted.TURN_DURATION_SUM, {})
    for lane in Lane.values:
        stored = {le: count for (of, le), count in counts.items() if of == lane}
        buckets = _buckets(stored, counters.DURATIONS, 1000)
        family.add_metric([lane], buckets=buckets, sum_value=sums.get((lane,), 0) / 1000)
    return family


def _buckets(stored: Mapping[str, int], bounds: tuple[int, ...], divisor: int) -> list[tuple[str, float]]:
    """Return the buckets with cumulative counts, as Prometheus wants them."""
    so_far, buckets = 0, []
    for bound in bounds:
        so_far += stored.get(str(bound), 0)
        buckets.append((str(bound) if divisor == 1 else f"{bound / divisor:g}", float(so_far)))
    return [*buckets, (counters.EVERYTHING, float(so_far + stored.get(counters.EVERYTHING, 0)))]


class _Collector(Collector):
    """Gauges, read from the database at each scrape, and the stored counters."""

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registration does not query the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All metrics; without the database only what needs none."""
        yield _gauge("event_subscribers", "Open event streams.", hub().subscribers())
        yield _gauge("build_info", "The version, as a label.", {installation.VERSION: 1}, "version")
        ready = {name: float(found.ok) for name, found in check_readiness().items()}
        yield _gauge("ready", "Whether a part that turns need works.", ready, "check")
        if not ready["database"]:
            return
        try:
            yield from _gauges()
            yield from _counter_families(counters.figures())
        except (Error, psycopg.Error) as error:
            log.warning("metrics_without_database", error=type(error).__name__)


def _gauges() -> Iterable[Metric]:
    yield _gauge("open_turns", "Queued and running turns.", sessions.open_turns(), "state")
    waiting = sessions.queued_by_lane()
    yield _gauge(
        "queued_turns", "Queued turns.", {lane: each.count for lane, each in waiting.items()}, "lane"
    )
    ages = {lane: each.oldest_seconds for lane, each in waiting.items()}
    yield _gauge(
        "oldest_queued_turn_seconds", "Seconds that the oldest queued turn has waited.", ages, "lane"
    )
    alive = sessions.live_workers()
    yield _gauge("workers", "Live workers.", len(alive))
    yield _gauge("beats", "Beats that listen.", automations.beats_seen())
    if (silent := counters.seconds_since_beat()) is not None:
        yield _gauge("beat_last_round_age_seconds", "Seconds since a beat last finished a round.", silent)
    late = automations.seconds_overdue()
    yield _gauge("overdue_seconds", "Seconds by which the most overdue job or message is late.", late)
    meaning = f"Automations whose last {FAILURES_IN_A_ROW} attempts failed."
    yield _gauge("failing_automations", meaning, jobs_failing_in_a_row())
    yield _gauge("mailbox_waiting", "Updates that no turn has shown yet.", sessions.unread_mail().waiting)
    deliveries = sessions.open_deliveries()
    yield _gauge("open_deliveries", "Pending, sending and failed deliveries.", deliveries, "state")


def _gauge(name: str, meaning: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    """A gauge: one value, or one for each value of the label."""
    family = GaugeMetricFamily(f"rondo_{name}", meaning, labels=[label] if label else None)
    for key, each in value.items() if isinstance(value, Mapping) else [("", value)]:
        family.add_metric([key] if label else [], each)
    return family


REGISTRY.register(_Collector())


def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics in Prometheus's text format, for watchers."""
    if not is_watcher(request):
        text = "403 Forbidden: see RONDO_WATCHERS and RONDO_WATCHER_TOKEN\n"
        return HttpResponse(text, status=403, content_type="text/plain; charset=utf-8")
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)
