"""Runs that wait when their job is paused, removed or deleted."""

from __future__ import annotations

from django.db.models.functions import Now

from automations.models import CronJob, RunRecord, RunState
from sessions_app.cancel import cancel_waiting
from sessions_app.models import Turn
from sessions_app.models.turn import OPEN_STATES


def cancel_queued_runs(job: CronJob, reason: str) -> int:
    """What waits is not run any more; what runs goes on. How many of them had never begun."""
    fresh = 0
    for run in RunRecord.objects.filter(job=job, state=RunState.QUEUED):
        if RunRecord.objects.filter(turn=run.turn_id, turn__isnull=False).exclude(pk=run.pk).exists():
            continue  # a heartbeat's turn that others wait in, too
        if run.turn_id is not None and cancel_waiting(run.turn_id, reason):
            fresh += run.attempt == 1
            continue
        waits = run.turn_id and Turn.objects.filter(pk=run.turn_id, state__in=OPEN_STATES).exists()
        if not waits:  # the turn is gone, or ended without its run
            RunRecord.objects.filter(pk=run.pk, state=RunState.QUEUED).update(
                state=RunState.CANCELLED, reason=reason, not_before=None, finished_at=Now()
            )
    return fresh
