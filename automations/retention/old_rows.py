"""Delete old runs, and old scheduled messages that were sent, cancelled or failed, with their runs.

The job's clock still records the slots of deleted runs, so none is repeated (invariant 4).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from automations.models import CronJob, MessageStatus, RunRecord, RunState, ScheduledMessage
from automations.models.run import OPEN_RUNS
from sessions_app.models import Session
from sessions_app.postgres.statements import table
from sessions_app.retention.rules import keep_turns_of
from sessions_app.retention.walk import (
    HOUR,
    SESSIONS,
    OwnerWalk,
    of_owners,
    old,
    owner_keys,
    register_walk,
    remove_unlocked,
)

_run, _job, _message = table(RunRecord), table(CronJob), table(ScheduledMessage)
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
_ENDED: Any = _message.c.status != sa.literal_column(f"'{MessageStatus.PENDING}'")

OLD_MESSAGES = of_owners(
    table(Session).c.id,
    lambda session: (
        sa.select(_message.c.id)
        .where(_message.c.session_id == session.c.id, _ENDED, old(_message.c.updated_at))
        .order_by(_message.c.created_at)
    ),
)


def _remove_messages(ids: Iterable[str]) -> set[str]:
    """Delete these messages, except locked ones, with their runs. Returns the deleted ids."""
    ended = ScheduledMessage.objects.filter(pk__in=ids).exclude(status=MessageStatus.PENDING).order_by("pk")
    free = set(ended.select_for_update(skip_locked=True).values_list("pk", flat=True))
    ScheduledMessage.objects.filter(replaced_by__in=free).update(replaced_by=None)
    RunRecord.objects.filter(scheduled_message__in=free).delete()
    ScheduledMessage.objects.filter(pk__in=free).delete()
    return free


def _params_of_runs() -> dict[str, Any] | None:
    keep, days = settings.RONDO_KEEP_RUNS_PER_JOB, settings.RONDO_KEEP_RUNS_DAYS
    return {"keep": keep, "days": days} if keep or days else None


def _params_of_messages() -> dict[str, Any] | None:
    days = settings.RONDO_KEEP_SCHEDULED_DAYS
    return {"days": days} if days else None


def register_retention() -> None:
    """Register the deletion of old rows, and keep the turns of open runs: a retry copies the previous turn."""
    keep_turns_of(RunRecord.objects.filter(state__in=OPEN))
    register_walk(
        OwnerWalk(
            name="runs",
            params=_params_of_runs,
            owners=JOBS,
            first="",
            read_key=str,
            over=TOO_MANY_OR_OLD,
            remove=remove_unlocked(RunRecord.objects.exclude(state__in=OPEN)),
        )
    )
    register_walk(
        OwnerWalk(
            name="scheduled messages",
            params=_params_of_messages,
            owners=SESSIONS,
            first=str(uuid.UUID(int=0)),
            read_key=uuid.UUID,
            over=OLD_MESSAGES,
            remove=_remove_messages,
        )
    )
