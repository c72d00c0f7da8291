"""Titles of deleted routines, kept so that no heartbeat registers them again (rule 5.6)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from automations.models import CronJob, ExecutionMode, RemovedRoutine

MOST_KEPT = 500  # titles of one agent; the oldest are deleted
_LONGEST = 200
_SPACE = re.compile(r"\s+")


def normalised(title: str) -> str:
    """A title for comparison: duplicates differ in case, character width or spacing only."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", title)).strip().casefold()


def remember_removed_titles(jobs: Iterable[CronJob]) -> None:
    """Store the titles of the routines among these jobs, in the transaction that deletes them."""
    gone = [job for job in jobs if job.execution_mode != ExecutionMode.SESSION]
    titles = sorted(
        {(job.agent_id, _cut(job.name)) for job in gone}
    )  # always in this order, against deadlocks
    RemovedRoutine.objects.bulk_create(
        [RemovedRoutine(agent_id=agent_id, title=title) for agent_id, title in titles],
        update_conflicts=True,
        unique_fields=["agent", "title"],
        update_fields=["removed_at"],
    )
    for agent_id in {job.agent_id for job in gone}:
        kept = RemovedRoutine.objects.filter(agent_id=agent_id).order_by("-removed_at", "-pk")
        RemovedRoutine.objects.filter(pk__in=list(kept.values_list("pk", flat=True)[MOST_KEPT:])).delete()


def removed_titles(agent_id: int, most: int) -> list[str]:
    """Titles of deleted routines, the latest first."""
    rows = RemovedRoutine.objects.filter(agent_id=agent_id).order_by("-removed_at", "-pk")
    return list(rows.values_list("title", flat=True)[:most])


def was_removed(agent_id: int, title: str) -> bool:
    """Whether a routine with this title was deleted."""
    return RemovedRoutine.objects.filter(agent_id=agent_id, title=_cut(title)).exists()


def _cut(title: str) -> str:
    return normalised(title)[:_LONGEST]
