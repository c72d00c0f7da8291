"""Who starts an isolated routine: beat, or, while `scheduler.cron_jobs` is off, the heartbeat (rule 10.1).

`JobClock.inline` says it, for slots and for further attempts; `execution_mode` stays what its creator chose.
"""

from __future__ import annotations

from django.db import transaction

from automations.due import plans_changed
from automations.models import CronJob, ExecutionMode, JobClock
from sessions_app import flags


def goes_with_heartbeat(job: CronJob) -> bool:
    """Whether the heartbeat starts this routine."""
    if job.execution_mode == ExecutionMode.ISOLATED:
        return not flags.runs_jobs_apart()
    return job.execution_mode == ExecutionMode.INLINE


def follow_flag() -> int:
    """Have each isolated routine started by who is to start it now; how many that changed.

    One whose run waits for another attempt stays with its heartbeat until that is over: the attempt is a part of a
    heartbeat's turn.
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
            transaction.on_commit(plans_changed, robust=True)
    return moved
