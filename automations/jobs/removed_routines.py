"""Titles of deleted routines, kept so that no heartbeat registers them again (rule 5.6)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from agent_core.text.formats import one_width
from automations.models import CronJob, ExecutionMode, RemovedRoutine

MOST_KEPT = 500  # titles of one agent; the oldest are deleted
_LONGEST = 200
_SPACE = re.compile(r"\s+")


def normalised(title: str) -> str:
    """A title for comparison: duplicates differ in case, character width or spacing only."""
    return _SPACE.sub(" ", one_width(title)).strip().casefold()


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
        kept = latest_removed(agent_id)
        RemovedRoutine.objects.filter(pk__in=list(kept.values_list("pk", flat=True)[MOST_KEPT:])).delete()


def latest_removed(agent: Any) -> QuerySet[RemovedRoutine]:
    """Deleted routines of the agent (an id or an `OuterRef`), the latest first."""
    return RemovedRoutine.objects.filter(agent_id=agent).order_by("-removed_at", "-pk")


def was_removed(agent_id: int, title: str) -> bool:
    """Whether a routine with this title was deleted."""
    return RemovedRoutine.objects.filter(agent_id=agent_id, title=_cut(title)).exists()


def _cut(title: str) -> str:
    return normalised(title)[:_LONGEST]
