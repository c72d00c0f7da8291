"""The execution mode of a routine: inline in a heartbeat, or isolated in its own session (rule 6.4)."""

from __future__ import annotations

from django.db import transaction

from automations.exceptions import BadJob
from automations.jobs.clock import notify_beats
from automations.models import CronJob, ExecutionMode, JobClock
from sessions_app import flags

INLINE_TIMEOUT = 60  # seconds; a routine with a longer timeout is isolated
INLINE_DESCRIPTION = 200  # characters; a routine with a longer description is isolated


def check_mode_of_task_type(execution_mode: str, task_type: str) -> None:
    """BadJob for a task that needs no model and is not inline: its own session would call a model."""
    if task_type and execution_mode != ExecutionMode.INLINE:
        raise BadJob(f"task_type {task_type} needs execution_mode inline", code="bad_task_type")


def inferred_mode(timeout_seconds: int | None, description: str, task_type: str = "") -> str:
    """The default mode of a routine (rule 6.4). `timeout_seconds`: None when it was not given."""
    if task_type:
        return ExecutionMode.INLINE
    if timeout_seconds is not None and timeout_seconds > INLINE_TIMEOUT:
        return ExecutionMode.ISOLATED
    return ExecutionMode.ISOLATED if len(description) > INLINE_DESCRIPTION else ExecutionMode.INLINE


def is_started_by_heartbeat(job: CronJob) -> bool:
    """Whether the heartbeat starts this routine."""
    if job.execution_mode == ExecutionMode.ISOLATED:
        return not flags.runs_jobs_apart()
    return job.execution_mode == ExecutionMode.INLINE


def apply_jobs_flag() -> int:
    """Apply `scheduler.cron_jobs`: while it is false, heartbeats start isolated routines. Returns how many changed.

    A routine whose run waits for a retry stays with its heartbeat until then: the attempt is part of a heartbeat's
    turn.
    """
    inline = not flags.runs_jobs_apart()
    rows = JobClock.objects.filter(inline=not inline, job__execution_mode=ExecutionMode.ISOLATED)
    if not inline:
        rows = rows.exclude(job__runs__not_before__isnull=False)
    with transaction.atomic():
        ids = list(
            rows.order_by("pk").select_for_update(of=("self",), no_key=True).values_list("pk", flat=True)
        )
        moved = JobClock.objects.filter(pk__in=ids).update(inline=inline) if ids else 0
        if moved:
            transaction.on_commit(notify_beats, robust=True)
    return moved
