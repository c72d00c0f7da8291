"""Figures of all users' runs for operators. Each reads a bounded number of rows, however large the table is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django.db import connection
from django.db.models import QuerySet

from automations.models import CronJob, JobClock, RunRecord, ScheduledMessage
from automations.models.run import CANCELLED_BY_ERROR

NEWEST = 20_000  # runs of the last 24 hours that are counted
MOST_FAILURES = 1_000  # failed runs of the last 24 hours that are looked at
FAILURES_IN_A_ROW = 3  # attempts, of one run or of several, after which an automation counts as failing

# as the partial index `run_failed` has it; a tuple of texts is written as SQL's list
_HAS_FAILED = f"(state = 'failed' OR (reason IN {CANCELLED_BY_ERROR} AND state = 'cancelled'))"

_RECENT = """
WITH recent AS MATERIALIZED (
  SELECT created_at, state, lag_ms FROM automations_runrecord
  WHERE created_at > now() - interval '24 hours' ORDER BY created_at DESC, run_id DESC LIMIT %s
)
SELECT date_trunc('hour', created_at), state, count(*), NULL::timestamptz, NULL::float8[] FROM recent GROUP BY 1, 2
UNION ALL
SELECT now(), '', count(*), min(created_at),
  percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY lag_ms) FROM recent"""
# a job fails if its last run that was not skipped failed, or was cancelled while it waited for another attempt
_FAILING = f"""
WITH failed AS MATERIALIZED (
  SELECT job_id, created_at FROM automations_runrecord
  WHERE {_HAS_FAILED} AND created_at > now() - interval '24 hours'
  ORDER BY created_at DESC, run_id DESC LIMIT %s
)
SELECT last.run_id, jobs.failures
FROM (SELECT job_id, count(*) AS failures, max(created_at) AS latest FROM failed
      WHERE job_id IS NOT NULL GROUP BY job_id) AS jobs
CROSS JOIN LATERAL (
  SELECT run_id, {_HAS_FAILED} AS has_failed FROM automations_runrecord AS run
  WHERE run.job_id = jobs.job_id AND state IN ('succeeded', 'failed', 'cancelled')
  ORDER BY scheduled_for DESC LIMIT 1
) AS last
WHERE last.has_failed ORDER BY jobs.latest DESC"""  # noqa: S608 - a constant

# the newest runs of a job that ended or are tried again, up to the first that did not fail; an attempt that waits has
# its number already
_IN_A_ROW = f"""
WITH failed AS MATERIALIZED (
  SELECT job_id FROM automations_runrecord
  WHERE {_HAS_FAILED} AND created_at > now() - interval '24 hours'
  ORDER BY created_at DESC, run_id DESC LIMIT %(most)s
), tried AS MATERIALIZED (
  SELECT job_id FROM automations_runrecord
  WHERE state IN ('queued', 'running') AND attempt > %(times)s LIMIT %(most)s
)
SELECT count(*) FROM (SELECT job_id FROM failed UNION SELECT job_id FROM tried) AS jobs
CROSS JOIN LATERAL (
  SELECT sum(failures) FILTER (WHERE good = 0) AS failures FROM (
    SELECT CASE WHEN state = 'failed' THEN attempt ELSE attempt - 1 END AS failures,
      sum((state IN ('succeeded', 'cancelled') AND NOT {_HAS_FAILED})::int) OVER (ORDER BY scheduled_for DESC) AS good
    FROM (
      SELECT state, reason, attempt, scheduled_for FROM automations_runrecord AS run
      WHERE run.job_id = jobs.job_id AND (state IN ('succeeded', 'failed', 'cancelled') OR attempt > 1)
      ORDER BY scheduled_for DESC LIMIT %(times)s
    ) AS newest
  ) AS counted
) AS last
WHERE last.failures >= %(times)s"""  # noqa: S608 - a constant


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
    hours: dict[datetime, dict[str, int]] = {}
    total, since, lateness = 0, None, None
    with connection.cursor() as cursor:
        cursor.execute(_RECENT, [NEWEST])
        for hour, state, count, first, percentiles in cursor.fetchall():
            if state:
                hours.setdefault(hour, {})[state] = count
            else:
                total, since = count, first if count >= NEWEST else None
                lateness = tuple(percentiles) if percentiles and percentiles[0] is not None else None
    return RecentRuns(count=total, since=since, hours=hours, lateness=lateness)


@dataclass(frozen=True, kw_only=True)
class FailingJobs:
    """Jobs whose last run failed within 24 hours: `count` in all, and the newest with the number of their failures.

    `cut`: there were more failures than are looked at, so `count` may be too small.
    """

    count: int
    cut: bool
    newest: Sequence[tuple[RunRecord, int]]


def failing_jobs(shown: int) -> FailingJobs:
    """The jobs that fail now; the last run of up to `shown` of them."""
    with connection.cursor() as cursor:
        cursor.execute(_FAILING, [MOST_FAILURES])
        found = dict(cursor.fetchall())
    runs = RunRecord.objects.select_related("job__agent__owner").in_bulk(list(islice(found, shown)))
    newest = [(runs[run_id], found[run_id]) for run_id in islice(found, shown) if run_id in runs]
    return FailingJobs(count=len(found), cut=sum(found.values()) >= MOST_FAILURES, newest=newest)


def jobs_failing_in_a_row() -> int:
    """The number of jobs whose newest FAILURES_IN_A_ROW attempts failed, the last within 24 hours."""
    with connection.cursor() as cursor:
        cursor.execute(_IN_A_ROW, {"most": MOST_FAILURES, "times": FAILURES_IN_A_ROW})
        return int(cursor.fetchone()[0])


def set_aside_jobs() -> QuerySet[CronJob]:
    """The jobs that were disabled because of a fault."""
    return CronJob.objects.exclude(fault="")


def retrying_runs() -> QuerySet[RunRecord]:
    """The runs that wait for their next attempt."""
    return RunRecord.objects.filter(not_before__isnull=False)


def next_slots(count: int) -> list[tuple[datetime, CronJob | ScheduledMessage]]:
    """What beat fires next, jobs and scheduled messages, earliest first; it may be overdue."""
    clocks = JobClock.objects.filter(next_run_at__isnull=False, inline=False).order_by("next_run_at")
    messages = ScheduledMessage.objects.waiting().order_by("send_at", "id").select_related("session__agent")
    found: list[tuple[datetime, CronJob | ScheduledMessage]] = [
        (clock.next_run_at, clock.job)
        for clock in clocks.select_related("job__agent")[:count]
        if clock.next_run_at is not None
    ]
    found += [(message.send_at, message) for message in messages[:count]]
    return sorted(found, key=lambda each: each[0])[:count]
