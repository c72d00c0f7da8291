"""The provenance of a job: whether a hook, or a turn that had read outside text, made or changed it (rule 3.5)."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F

from automations.models import CronJob
from sessions_app.models import TurnInput
from sessions_app.turns.tool_calls import ToolContext

SEVERAL = "several"  # jobs of several hooks; no hook has this id


def record_provenance(job_id: str, context: ToolContext) -> None:
    """Store the provenance of the turn that made or changed the job: the job's turns are restricted as it was."""
    if context.stranger is not None or context.has_read:
        CronJob.objects.filter(pk=job_id).update(
            stranger=context.stranger or F("stranger"), has_read=context.has_read or F("has_read")
        )


def provenance_of(jobs: Iterable[CronJob]) -> TurnInput:
    """The provenance of these jobs for their common turn, which is restricted as the most restricted of them.

    If several hooks made the jobs, the turn may only read: it gets the hook id `several`, which allows no tool.
    """
    jobs = list(jobs)
    strangers = {job.stranger for job in jobs if job.stranger}
    stranger = next(iter(strangers), "") if len(strangers) < 2 else SEVERAL
    return TurnInput(stranger=stranger, read_before=any(job.has_read for job in jobs))
