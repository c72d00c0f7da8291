"""The provenance of a job: whether a hook, or a turn that had read outside text, made or changed it (rule 3.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import F

from automations.models import CronJob
from sessions_app import permits
from sessions_app.turns.tool_calls import ToolContext

SEVERAL = "several"  # jobs of several hooks; no hook has this id


def record_provenance(job_id: str, context: ToolContext) -> None:
    """Store the provenance of the turn that made or changed the job: the job's turns are restricted as it was."""
    if context.stranger is not None or context.has_read:
        CronJob.objects.filter(pk=job_id).update(
            stranger=context.stranger or F("stranger"), has_read=context.has_read or F("has_read")
        )


def provenance_marks(jobs: Iterable[CronJob]) -> dict[str, Any]:
    """The provenance of these jobs for a turn's metadata: the turn is restricted as the most restricted of them.

    With jobs of several hooks it may only read, because no hook has the id `several`.
    """
    jobs = list(jobs)
    strangers = {job.stranger for job in jobs if job.stranger}
    stranger = next(iter(strangers), "") if len(strangers) < 2 else SEVERAL
    return permits.provenance(stranger, has_read=any(job.has_read for job in jobs))
