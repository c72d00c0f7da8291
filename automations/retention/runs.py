"""Delete old runs. The job's clock still records their slots, so none is repeated (invariant 4)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from django.conf import settings

from automations.models import CronJob, RunRecord, RunState
from automations.models.run import OPEN_RUNS
from sessions_app.postgres.statements import table
from sessions_app.retention.rules import keep_turns_of
from sessions_app.retention.walk import (
    HOUR,
    OwnerWalk,
    of_owners,
    owner_keys,
    register_walk,
    remove_unlocked,
)

_run, _job = table(RunRecord), table(CronJob)
OPEN = list(OPEN_RUNS)


def _in(states: list[RunState]) -> Any:
    return _run.c.state.in_([sa.literal_column(f"'{state}'") for state in states])


def _slot(job: Any, *, skipped: bool = True, newer: Any = 0) -> Any:
    """The slot of the job's newest run, after `newer` newer ones; with or without skipped runs."""
    run = _run.alias()
    slots = sa.select(run.c.scheduled_for).where(run.c.job_id == job.c.id)
    if not skipped:
        slots = slots.where(run.c.state != sa.literal_column("'skipped'"))
    return slots.order_by(run.c.scheduled_for.desc()).offset(newer).limit(1).correlate(job).scalar_subquery()


def _beyond(job: Any) -> Any:
    """A job's runs that are too many or too old.

    The last run is kept, because it may be a gap that is extended. The last one that was not skipped is kept as the
    job's result.
    """
    keep = sa.bindparam("keep", type_=sa.BigInteger())
    days = sa.bindparam("days", type_=sa.Integer())
    too_old = sa.case((days > 0, sa.func.now() - sa.func.make_interval(0, 0, 0, days)))
    oldest_kept = sa.case((keep > 0, _slot(job, newer=sa.func.greatest(keep - 1, 0))))
    ended_at = sa.func.greatest(_run.c.finished_at, _run.c.slots_to)
    return (
        sa.select(_run.c.run_id.label("id"))
        .where(
            _run.c.job_id == job.c.id,
            _run.c.scheduled_for < sa.func.greatest(oldest_kept, too_old),
            ~_in(OPEN),
            sa.or_(
                ended_at < too_old,
                sa.and_(_run.c.scheduled_for < oldest_kept, ended_at < sa.func.now() - HOUR),
            ),
            _run.c.scheduled_for.is_distinct_from(_slot(job)),
            _run.c.scheduled_for.is_distinct_from(_slot(job, skipped=False)),
        )
        .order_by(_run.c.scheduled_for)
    )


JOBS = owner_keys(_job.c.id)
TOO_MANY_OR_OLD = of_owners(_job.c.id, _beyond)


def _params() -> dict[str, Any] | None:
    keep, days = settings.RONDO_KEEP_RUNS_PER_JOB, settings.RONDO_KEEP_RUNS_DAYS
    return {"keep": keep, "days": days} if keep or days else None


def register_run_retention() -> None:
    """Register the deletion of old runs, and keep the turns of open runs: a retry copies the previous turn."""
    keep_turns_of(RunRecord.objects.filter(state__in=OPEN))
    register_walk(
        OwnerWalk(
            name="runs",
            params=_params,
            owners=JOBS,
            first="",
            read_key=str,
            over=TOO_MANY_OR_OLD,
            remove=remove_unlocked(RunRecord.objects.exclude(state__in=OPEN)),
        )
    )
