"""The check of known problems that will stop automations (rule 11.5)."""

from __future__ import annotations

from automations.models import JobPreflight
from config.operations.checks import NAMED, Finding, failed_if_any

LONGEST_NAME = 60  # characters of an automation's name


def preflight() -> Finding:
    """Nothing is known that will stop the next run of an automation."""
    coming = {"job__enabled": True, "job__fault": "", "job__clock__next_run_at__isnull": False}
    rows = JobPreflight.objects.filter(**coming).exclude(problems=[]).select_related("job").order_by("pk")
    first = ((row.job, row.problems[0]["text"]) for row in rows[:NAMED])
    named = (f"{job.pk} {job.name[:LONGEST_NAME]!r}: {text}" for job, text in first)
    cure = (
        "their owners were told; mend what is the server's: a connection, a channel, a plugin, time-zone data"
    )
    return failed_if_any("next runs that will fail", named, rows.count(), cure)
