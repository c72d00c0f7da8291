"""The request to check a job that was saved soon (rule 11.5)."""

from __future__ import annotations

from django.db import transaction

from automations.models import CronJob, JobPreflight
from sessions_app import flags, hints

PREFLIGHT = "preflight"  # the chore of maintenance


def request_preflight(job: CronJob) -> None:
    """Have a job that was saved checked soon, in the transaction that saves it."""
    if not flags.PREFLIGHT.value:
        return
    row = JobPreflight(job=job, requested=True)
    JobPreflight.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["job"], update_fields=["requested"]
    )
    transaction.on_commit(lambda: hints.ask_for_maintenance(PREFLIGHT), robust=True)
