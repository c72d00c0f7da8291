"""What `automations.jobs.explain` says of an automation and its runs, on their pages."""

from __future__ import annotations

from collections.abc import Iterable

from automations.exceptions import JobNotFound
from automations.jobs.explain import Explanation, explain
from automations.models import CronJob, RunRecord
from automations.runs.describe import describe_run, when
from automations.schedules.zone_files import zone_or_utc
from interfaces.admin.panels import Panel, verbatim


def explanation_of(job: CronJob) -> Explanation | None:
    """The explanation that the job's owner gets; None for a job that belongs to no conversation. Kept on the object."""
    kept: dict[str, Explanation | None] = job.__dict__
    if "_explanation" not in kept:
        kept["_explanation"] = _explained(job)
    return kept["_explanation"]


def _explained(job: CronJob) -> Explanation | None:
    if job.session is None:
        return None
    try:
        return explain(job.session.owner, job.pk)
    except JobNotFound:  # it was deleted meanwhile
        return None


def state_panel(job: CronJob, found: Explanation) -> Panel:
    """Its state, its warnings and its next runs."""
    zone = zone_or_utc(job.timezone)
    coming = ", ".join(when(firing, zone) for firing in found.next) or "none"
    lines = [found.now, *found.warnings, f"Next runs ({found.timezone}): {coming}."]
    return verbatim("What is going on", "\n".join(lines))


def sentences(job: CronJob, runs: Iterable[RunRecord], found: Explanation | None) -> dict[str, str]:
    """One sentence for each run, by its id."""
    said = {each.run_id: each.text for each in found.last} if found else {}
    zone = zone_or_utc(job.timezone)
    return {run.pk: said.get(run.pk) or describe_run(run, zone) for run in runs}


def in_words(run: RunRecord) -> str:
    """A run in one sentence, with times in the zone of its automation."""
    if run.job is None:
        return describe_run(run, zone_or_utc("UTC"))
    return sentences(run.job, [run], explanation_of(run.job))[run.pk]
