"""Checks of what will stop coming runs and calls: problems that preflight found, and used-up caps."""

from __future__ import annotations

from datetime import UTC, datetime

from automations.models import JobPreflight
from config.operations.checks import NAMED, Finding, failed_if_any
from sessions_app.models import Connection
from sessions_app.spending.caps import WORDS, anew, budget_of, used_up

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


def caps() -> Finding:
    """No cap of a connection of the server is used up."""
    rows = Connection.objects.filter(owner=None).exclude(limits={}).order_by("name")
    budgets = (budget_of("connection", row.pk, row.limits, name=row.name) for row in rows)
    found = used_up(budgets, datetime.now(UTC))
    named = [f"the connection {each['name']} for {WORDS[each['period']]}: {anew(each)}" for each in found]
    cure = "calls through it are refused; raise the cap in the admin, or wait until it begins anew"
    return failed_if_any("caps that are used up", named[:NAMED], len(named), cure)
