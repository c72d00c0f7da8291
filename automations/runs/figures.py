"""Figures of all users' runs for operators. Each reads a bounded number of rows, however large the table is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import quantiles
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import JSONObject
from django.utils import timezone

from automations.models import Attention, CronJob, JobClock, JobHealth, RunRecord, RunState, ScheduledMessage
from automations.models.health import FAILING_AFTER
from automations.models.run import CANCELLED_BY_ERROR, OPEN_RUNS

NEWEST = 20_000  # runs of the last 24 hours that are counted
MOST_FAILURES = 1_000  # failed runs of the last 24 hours that are looked at
FAILURES_IN_A_ROW = 3  # attempts, of one run or of several, after which an automation counts as failing

_DAY = timedelta(hours=24)
_ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)
# as in the partial index `run_failed`
_HAS_FAILED = Q(state="failed") | Q(state="cancelled", reason__in=CANCELLED_BY_ERROR)


@dataclass(frozen=True, kw_only=True)
class RecentRuns:
    """The runs of the last 24 hours, at most the NEWEST of them; then `since` is when the first of these was made.

    `hours`: counts by state for each full hour (UTC). `lateness`: milliseconds from a slot to its firing: p50, p95 and
    p99; None without runs.
    """

    count: int
    since: datetime | None
    hours: dict[datetime, dict[str, int]]
    lateness: tuple[float, float, float] | None


def recent_runs() -> RecentRuns:
    """Count the runs of the last 24 hours."""
    recent = RunRecord.objects.filter(created_at__gt=timezone.now() - _DAY)
    times = recent.order_by("-created_at", "-run_id").values_list("created_at", flat=True)
    since = times[NEWEST - 1 : NEWEST].first()
    if since is not None:
        recent = recent.filter(created_at__gte=since)
    rows = list(recent.values_list("created_at", "state", "lag_ms"))
    hours: dict[datetime, dict[str, int]] = {}
    for created_at, state, _ in rows:
        hours.setdefault(created_at.replace(minute=0, second=0, microsecond=0), Counter())[state] += 1
    lags = [lag for _, _, lag in rows if lag is not None]
    return RecentRuns(count=len(rows), since=since, hours=hours, lateness=_lateness(lags))


def _lateness(lags: list[int]) -> tuple[float, float, float] | None:
    if not lags:
        return None
    cuts = quantiles(lags if len(lags) > 1 else 2 * lags, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


@dataclass(frozen=True, kw_only=True)
class FailingJobs:
    """Jobs that fail now: `count` in all, and the newest last runs with the number of failures within 24 hours.

    `cut`: there were more failures than are looked at, so `count` may be too small.
    """

    count: int
    cut: bool
    newest: Sequence[tuple[RunRecord, int]]


def failing_jobs(shown: int) -> FailingJobs:
    """The jobs that fail now, with up to `shown` of their last runs.

    A job fails if its last run that was not skipped failed, or was cancelled while it waited for another attempt; or if
    that run needs attention, as do at least two before it.
    """
    doubtful = _recent_doubts()
    failures = _recent_failures()
    failures.update(doubtful)
    ended = RunRecord.objects.filter(job=OuterRef("pk"), state__in=_ENDED).order_by("-scheduled_for")
    jobs = CronJob.objects.filter(pk__in=failures).annotate(last_run=Subquery(ended.values("pk")[:1]))
    last = dict(jobs.values_list("pk", "last_run"))
    lacking = ~Q(attention=Attention.NONE) & Q(state=RunState.SUCCEEDED, job__in=doubtful)
    failed = RunRecord.objects.filter(_HAS_FAILED | lacking, pk__in=last.values())
    runs = failed.select_related("job__agent__owner").in_bulk()
    newest = [(runs[last[job]], count) for job, count in failures.items() if last.get(job) in runs]
    newest.sort(key=lambda each: each[0].created_at, reverse=True)
    cut = failures.total() >= MOST_FAILURES
    return FailingJobs(count=len(newest), cut=cut, newest=newest[:shown])


def _recent_failures() -> Counter[str]:
    """The number of failed runs of each job within 24 hours; the job that failed last comes first."""
    failed = RunRecord.objects.filter(_HAS_FAILED, job__isnull=False, created_at__gt=timezone.now() - _DAY)
    jobs = failed.order_by("-created_at", "-run_id").values_list("job_id", flat=True)
    return Counter(jobs[:MOST_FAILURES])


def _recent_doubts() -> Counter[str]:
    """The number of runs within 24 hours that need attention, of each job for which these count as failures."""
    since = timezone.now() - _DAY
    failing = JobHealth.objects.filter(failures_in_a_row__gte=FAILING_AFTER, failed_last__gt=since)
    jobs = list(failing.order_by("-failed_last").values_list("pk", flat=True)[:MOST_FAILURES])
    runs = RunRecord.objects.filter(job__in=jobs, state=RunState.SUCCEEDED, created_at__gt=since)
    lacking = runs.exclude(attention=Attention.NONE).values_list("job_id", flat=True)
    return Counter(lacking[:MOST_FAILURES])


def jobs_failing_in_a_row() -> int:
    """The number of jobs whose newest FAILURES_IN_A_ROW attempts failed, the last within 24 hours."""
    tried = RunRecord.objects.filter(state__in=OPEN_RUNS, attempt__gt=FAILURES_IN_A_ROW)
    suspects = {*_recent_failures(), *tried.values_list("job_id", flat=True)[:MOST_FAILURES]}
    runs = RunRecord.objects.filter(Q(state__in=_ENDED) | Q(attempt__gt=1), job=OuterRef("pk"))
    newest = runs.order_by("-scheduled_for").values(
        shown=JSONObject(state="state", reason="reason", attempt="attempt")
    )
    jobs = CronJob.objects.filter(pk__in=suspects).annotate(newest=ArraySubquery(newest[:FAILURES_IN_A_ROW]))
    return sum(_failed_attempts(runs) >= FAILURES_IN_A_ROW for runs in jobs.values_list("newest", flat=True))


def _failed_attempts(newest: Iterable[Mapping[str, Any]]) -> int:
    """The failed attempts of a job's newest runs, up to the first run that ended well or by a person."""
    failures = 0
    for run in newest:
        was_stopped = run["state"] == RunState.CANCELLED and run["reason"] not in CANCELLED_BY_ERROR
        if run["state"] == RunState.SUCCEEDED or was_stopped:
            break
        # a run that waits for its next attempt has the number of that attempt already
        failures += run["attempt"] if run["state"] == RunState.FAILED else run["attempt"] - 1
    return failures


def set_aside_jobs() -> QuerySet[CronJob]:
    """The jobs that were disabled because of a fault."""
    return CronJob.objects.exclude(fault="")


def retrying_runs() -> QuerySet[RunRecord]:
    """The runs that wait for their next attempt."""
    return RunRecord.objects.filter(not_before__isnull=False)


def next_slots(count: int) -> list[tuple[datetime, CronJob | ScheduledMessage]]:
    """The next slots of jobs and scheduled messages, earliest first; some may be overdue."""
    clocks = JobClock.objects.filter(next_run_at__isnull=False, inline=False).order_by("next_run_at")
    messages = ScheduledMessage.objects.waiting().order_by("send_at", "id").select_related("session__agent")
    found: list[tuple[datetime, CronJob | ScheduledMessage]] = [
        (clock.next_run_at, clock.job)
        for clock in clocks.select_related("job__agent", "job__health")[:count]
        if clock.next_run_at is not None
    ]
    found += [(message.send_at, message) for message in messages[:count]]
    return sorted(found, key=lambda each: each[0])[:count]
