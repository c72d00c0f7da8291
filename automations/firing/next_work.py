"""When beat has work next."""

from __future__ import annotations

from django.db.models import Min, Q
from django.db.models.functions import Now

from automations.models import JobClock, RunRecord, ScheduledMessage


def seconds_to_next_work() -> float:
    """Seconds until beat has something to queue: 0 or less when a row is overdue, infinite when nothing is planned.

    Due inline routines do not count: they may have to wait, and their starter knows how long.
    """
    retries = RunRecord.objects.filter(not_before__isnull=False)
    planned = (
        (JobClock.objects.filter(inline=False), "next_run_at"),
        (JobClock.objects.filter(inline=True, next_run_at__gt=Now()), "next_run_at"),
        (retries.filter(Q(job__clock__inline=False) | Q(not_before__gt=Now())), "not_before"),
        (ScheduledMessage.objects.waiting(), "send_at"),
    )
    waits = [rows.aggregate(wait=Min(column) - Now())["wait"] for rows, column in planned]
    return min((wait.total_seconds() for wait in waits if wait is not None), default=float("inf"))
