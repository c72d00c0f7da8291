"""The SQL of firing that reads and writes job clocks: claim due jobs, advance their clocks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from django.db.models import F

from automations.models import CronJob, JobClock, RunRecord
from sessions_app.models import Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.statements import Statement, table

_clock, _job, _run = table(JobClock), table(CronJob), table(RunRecord)
_turn, _session = table(Turn), table(Session)


@dataclass(frozen=True, kw_only=True)
class DueJob:
    """A claimed job with what the decision about it needs.

    `next_run_at`: when its first due slot is fired. `last_slot`: the latest slot that was run or skipped. `open`: its
    runs whose turn is queued or running. `waiting`: those whose turn is queued. `retrying`: its runs that wait for
    another attempt. `owner_is_active`: whether the account of the agent's owner is active now.
    """

    job: CronJob
    next_run_at: datetime
    last_slot: datetime | None
    runs_started: int
    now: datetime
    session_id: uuid.UUID | None
    session_state: str
    session_key: str
    owner_is_active: bool
    open: int
    waiting: int
    retrying: int


# (SELECT now()): with a known time PostgreSQL expects few due rows and sorts them, so after an outage each batch
# would read all overdue rows. With an unknown time it walks the index in order, up to the limit.
# NOT inline, as in the partial index: with "inline IS FALSE" PostgreSQL would read every clock.
_IS_DUE = sa.and_(_clock.c.next_run_at <= sa.select(sa.func.now()).scalar_subquery(), ~_clock.c.inline)


# now(), never clock_timestamp(): a volatile function cannot be an index condition
CLOCKS = sa.select(
    _clock.c.job_id,
    _clock.c.next_run_at,
    _clock.c.last_slot,
    _clock.c.runs_started,
    sa.func.now().label("now"),
)


def _claim(*which: Any) -> Statement:
    return Statement(
        CLOCKS.where(_IS_DUE, *which)
        .order_by(_clock.c.next_run_at)
        .limit(sa.bindparam("limit", type_=sa.Integer()))
        .with_for_update(skip_locked=True)
    )


CLAIM, CLAIM_ONE = _claim(), _claim(_clock.c.job_id == sa.bindparam("job_id", type_=sa.Text()))
DUE_IDS = Statement(
    sa.select(_clock.c.job_id)
    .where(_IS_DUE)
    .order_by(_clock.c.next_run_at)
    .limit(sa.bindparam("limit", type_=sa.Integer()))
)
OPEN_RUNS = Statement(
    sa.select(
        _run.c.job_id,
        sa.func.count(_turn.c.id).label("open"),
        sa.func.count().filter(_turn.c.state == TurnState.QUEUED).label("waiting"),
        sa.func.count(_run.c.not_before).label("retrying"),
    )
    .select_from(_run)
    .outerjoin(
        _turn,
        sa.and_(
            _turn.c.id == _run.c.turn_id,
            _turn.c.state.in_([sa.literal_column(f"'{state}'") for state in OPEN_STATES]),
        ),
    )
    .where(
        _run.c.job_id == sa.any_(sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text()))),
        _run.c.state.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")]),
    )
    .group_by(_run.c.job_id)
)


def due_job_ids(limit: int) -> list[str]:
    """Ids of due jobs; nothing is locked."""
    return [row.job_id for row in DUE_IDS.all(limit=limit)]


def claim_due_jobs(limit: int, only: str | None) -> list[DueJob]:
    """Lock due clocks that no other transaction has locked, and read their jobs. `only`: just this job.

    Two statements, so that the second one sees every edit that was committed before the clock was locked.
    """
    return read_due_jobs(CLAIM.all(limit=limit) if only is None else CLAIM_ONE.all(limit=limit, job_id=only))


def read_due_jobs(claimed: Sequence[Any]) -> list[DueJob]:
    """The jobs of locked clocks (rows of `CLOCKS`) with what the decisions about them need."""
    if not claimed:
        return []
    ids = [row.job_id for row in claimed]
    rows = CronJob.objects.select_related("session")
    jobs: dict[str, Any] = rows.annotate(owner_is_active=F("agent__owner__is_active")).in_bulk(ids)
    opened = {row.job_id: row for row in OPEN_RUNS.all(job_ids=ids)}
    return [_due(row, jobs[row.job_id], opened.get(row.job_id)) for row in claimed]


def lock_due_clock(job_id: str) -> datetime | None:
    """Lock one due clock. Its `next_run_at`, or None when it is not due or another transaction has locked it."""
    row = CLAIM_ONE.first(limit=1, job_id=job_id)
    return None if row is None else row.next_run_at


def _due(row: Any, job: Any, opened: Any | None) -> DueJob:
    session = job.session
    return DueJob(
        job=job,
        next_run_at=row.next_run_at,
        last_slot=row.last_slot,
        runs_started=row.runs_started,
        now=row.now,
        session_id=session.pk if session else None,
        session_state=session.state if session else "",
        session_key=session.key if session else "",
        owner_is_active=job.owner_is_active,
        open=opened.open if opened else 0,
        waiting=opened.waiting if opened else 0,
        retrying=opened.retrying if opened else 0,
    )


_values = (
    sa.func.unnest(
        sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text())),
        sa.bindparam("nexts", type_=sa.ARRAY(sa.DateTime(timezone=True))),
        sa.bindparam("lasts", type_=sa.ARRAY(sa.DateTime(timezone=True))),
        sa.bindparam("runs", type_=sa.ARRAY(sa.BigInteger())),
    )
    .table_valued(
        sa.column("job_id", sa.Text()),
        sa.column("next_run_at", sa.DateTime(timezone=True)),
        sa.column("last_slot", sa.DateTime(timezone=True)),
        sa.column("runs", sa.BigInteger()),
        name="moved",
    )
    .render_derived()
)
ADVANCE = Statement(
    sa.update(_clock)
    .where(_clock.c.job_id == _values.c.job_id)
    .values(
        next_run_at=_values.c.next_run_at,
        last_slot=sa.func.greatest(_clock.c.last_slot, _values.c.last_slot),
        runs_started=_clock.c.runs_started + _values.c.runs,
    )
)


@dataclass(frozen=True, kw_only=True)
class ClockMove:
    """A job's clock after firing. `last_slot`: the latest slot run or skipped. `runs`: slots that became runs."""

    job_id: str
    next_run_at: datetime | None
    last_slot: datetime | None
    runs: int = 0


def advance_clocks(moved: list[ClockMove]) -> None:
    """Write clocks after firing. `last_slot` never goes back."""
    ADVANCE.run(
        job_ids=[each.job_id for each in moved],
        nexts=[each.next_run_at for each in moved],
        lasts=[each.last_slot for each in moved],
        runs=[each.runs for each in moved],
    )
