"""The SQL of firing that reads and writes job clocks: claim due jobs, read what decides about them, advance clocks.

Beat fires many jobs at once, so a claimed job is no model instance: all of them are read as one JSON value, in a
fraction of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from django.contrib.auth import get_user_model

from automations.firing.next_work import earliest, seconds_until
from automations.heartbeats.readiness import InternalSession
from automations.models import CronJob, JobClock, RunRecord
from sessions_app import quotas
from sessions_app.models import Agent, Allowance, Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.statements import Statement, recordset, recordset_of, table

_clock, _job, _run = table(JobClock), table(CronJob), table(RunRecord)
_turn, _session, _agent, _owner = table(Turn), table(Session), table(Agent), table(get_user_model())
_allowance = table(Allowance)
_JOB_ID = sa.bindparam("job_id", type_=sa.Text())
_JOB_IDS = sa.bindparam("job_ids", type_=sa.ARRAY(sa.Text()))


class Facts(NamedTuple):
    """What the decision about a job's due slots reads: equal facts give an equal decision, so jobs can share it.

    `next_run_at`: when its first due slot is fired. `last_slot`: the latest slot that was run or skipped. `open`: its
    runs whose turn is queued or running. `waiting`: those that have not begun. `pk`, `agent_id`, `runs_started`:
    empty or 0 unless the job has jitter, active hours or a limit of runs.
    """

    next_run_at: datetime
    last_slot: datetime | None
    anchor: datetime | None
    at: datetime | None
    ends_at: datetime | None
    schedule_kind: str
    expr: str
    every_seconds: int | None
    timezone: str
    active_from: int | None
    active_to: int | None
    agent_id: int
    max_runs: int | None
    runs_started: int
    jitter_seconds: int
    pk: str
    catch_up: str
    overlap: str
    owner_is_active: bool
    owner_is_full: bool
    open: int
    waiting: int


_TIMES = 5  # the first fields of `Facts`
_FACTS: dict[str, Any] = {name: _job.c[name] for name in Facts._fields if name in _job.c} | {
    "next_run_at": _clock.c.next_run_at,
    "last_slot": _clock.c.last_slot,
    "agent_id": sa.case((_job.c.active_from.is_(None), 0), else_=_job.c.agent_id),
    "runs_started": sa.case((_job.c.max_runs.is_(None), 0), else_=_clock.c.runs_started),
    "pk": sa.case((_job.c.jitter_seconds == 0, sa.literal_column("''")), else_=_job.c.id),
    "owner_is_active": _owner.c.is_active,
    "owner_is_full": sa.select(sa.literal_column("1"))
    .where(
        _allowance.c.key == sa.func.concat(sa.literal_column(f"'{quotas.FULL}'"), _owner.c.id),
        _allowance.c.full_at > sa.func.now(),
    )
    .correlate_except(_allowance)
    .exists(),
}


class DueJob(NamedTuple):
    """A claimed job. `retrying`: its runs that wait for another attempt. `session_id` and `session_state`: of a bound
    job's session; None and empty for other jobs, until `attach_sessions` finds theirs. `internal`: a system or legacy
    job's session. `job`: only for a routine.
    """

    pk: str
    name: str
    kind: str
    system_event: str
    execution_mode: str
    channel: str
    to: str
    deliver: bool | None
    channel_meta: Any
    stranger: str
    has_read: bool
    agent_id: int
    agent_name: str
    session_id: str | None
    session_state: str
    retrying: int
    facts: Facts
    internal: InternalSession | None = None
    job: CronJob | None = None


# (SELECT now()): with a known time PostgreSQL expects few due rows and sorts them, so after an outage each batch
# would read all overdue rows. With an unknown time it walks the index in order, up to the limit.
# NOT inline, as in the partial index: with "inline IS FALSE" PostgreSQL would read every clock.
# now(), never clock_timestamp(): a volatile function cannot be an index condition
_IS_DUE = sa.and_(_clock.c.next_run_at <= sa.select(sa.func.now()).scalar_subquery(), ~_clock.c.inline)
_DUE = (
    sa.select(_clock.c.job_id)
    .where(_IS_DUE)
    .order_by(_clock.c.next_run_at)
    .limit(sa.bindparam("limit", type_=sa.Integer()))
)
# NO KEY UPDATE: whoever deletes what a job refers to checks keys of its runs, which must not wait for a batch
CLAIM = Statement(_DUE.with_for_update(skip_locked=True, key_share=True))
CLAIM_ONE = Statement(
    _DUE.add_columns(_clock.c.next_run_at)
    .where(_clock.c.job_id == _JOB_ID)
    .with_for_update(skip_locked=True, key_share=True)
)
DUE_IDS = Statement(_DUE)


def _wait(claimed: Any) -> Any:
    """Seconds until the first slot of another job; 0 or less: it is due, locked or not. FAR if no other job has one.

    A job that another beat has fired since the look is one of them: that beat may die before the job's next slot.
    """
    other = _clock.alias("other")
    is_other = ~other.c.inline, other.c.job_id.not_in(sa.select(claimed))
    return seconds_until(earliest(other.c.next_run_at, other.c.next_run_at.is_not(None), *is_other))


def _opened() -> Any:
    """The runs of a clock's job that have not ended: how many, and how many of them wait."""
    return (
        sa.select(
            sa.func.count(_turn.c.id).label("open"),
            sa.func.count()
            .filter(_turn.c.state == TurnState.QUEUED, _run.c.state == sa.literal_column("'queued'"))
            .label("waiting"),
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
            _run.c.job_id == _clock.c.job_id,
            _run.c.state.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")]),
        )
        .lateral("opened")
    )


def _read(which: Any, claimed: Any) -> Any:
    opened = _opened()
    facts = _FACTS | {"open": opened.c.open, "waiting": opened.c.waiting}
    columns: dict[str, Any] = {name: _job.c[name] for name in DueJob._fields if name in _job.c} | {
        "pk": _job.c.id,
        "agent_name": _agent.c.name,
        "session_state": sa.func.coalesce(_session.c.state, sa.literal_column("''")),
        "retrying": opened.c.retrying,
        "facts": sa.func.json_build_array(*(facts[name] for name in Facts._fields)),
    }
    row = sa.func.json_build_array(*(columns[name] for name in DueJob._fields if name in columns))
    return (
        sa.select(
            sa.func.json_agg(row).label("jobs"),
            sa.func.now().label("now"),
            _wait(claimed).label("wait"),
        )
        .select_from(_clock)
        .join(_job, _job.c.id == _clock.c.job_id)
        .join(_agent, _agent.c.id == _job.c.agent_id)
        .join(_owner, _owner.c.id == _agent.c.owner_id)
        .outerjoin(_session, _session.c.id == _job.c.session_id)
        .join(opened, sa.true())
        .where(which)
    )


# unnest(): PostgreSQL hashes it, and would compare each due job with each element of an array
READ = Statement(_read(_clock.c.job_id == sa.any_(_JOB_IDS), sa.func.unnest(_JOB_IDS)), prepared=True)
# mostly one is due; its plan is kept
READ_ONE = Statement(_read(_clock.c.job_id == _JOB_ID, _JOB_ID), prepared=True)


def due_job_ids(limit: int) -> list[str]:
    """Ids of due jobs; nothing is locked."""
    return [row.job_id for row in DUE_IDS.all(limit=limit)]


def claim_due_jobs(limit: int, only: str | None) -> list[str]:
    """Lock due clocks that no other transaction has locked. `only`: just this job. Returns the ids of the jobs."""
    claimed = CLAIM.all(limit=limit) if only is None else CLAIM_ONE.all(limit=limit, job_id=only)
    return [row.job_id for row in claimed]


class DueJobs(NamedTuple):
    """The jobs of locked clocks. `now`: the transaction's time.

    `wait`: seconds until the first slot of another job; 0 or less: it is due, its clock may be locked.
    """

    jobs: list[DueJob]
    now: datetime
    wait: float


def read_due_jobs(job_ids: Sequence[str]) -> DueJobs:
    """Read the jobs of locked clocks.

    A statement of its own after the claim, so that it sees every edit that was committed before the clock was locked.
    """
    [row] = READ_ONE.all(job_id=job_ids[0]) if len(job_ids) == 1 else READ.all(job_ids=list(job_ids))
    jobs = [_due_job(each) for each in row.jobs or ()]
    return DueJobs(jobs=jobs, now=row.now, wait=row.wait)


def _due_job(columns: list[Any]) -> DueJob:
    *given, facts = columns
    for at in range(_TIMES):
        if facts[at] is not None:
            facts[at] = datetime.fromisoformat(facts[at])
    return DueJob._make((*given, Facts._make(facts), None, None))


def lock_due_clock(job_id: str) -> datetime | None:
    """Lock one due clock. Its `next_run_at`, or None when it is not due or another transaction has locked it."""
    row = CLAIM_ONE.first(limit=1, job_id=job_id)
    return None if row is None else row.next_run_at


def move(*, only_one: bool = False) -> Any:
    """The UPDATE of clocks, which is also part of the statement that inserts runs. `only_one`: as for `recordset`."""
    types: dict[str, Any] = {
        "job_id": sa.Text(),
        "next_run_at": sa.DateTime(timezone=True),
        "last_slot": sa.DateTime(timezone=True),
        "runs": sa.BigInteger(),
    }
    given = recordset("clocks", types, only_one=only_one).subquery("moved")
    return (
        sa.update(_clock)
        .where(_clock.c.job_id == given.c.job_id)
        .values(
            next_run_at=given.c.next_run_at,
            last_slot=sa.func.greatest(_clock.c.last_slot, given.c.last_slot),
            runs_started=_clock.c.runs_started + given.c.runs,
        )
    )


ADVANCE = Statement(move(), prepared=True)


def advance_clocks(clocks: Sequence[dict[str, Any]]) -> None:
    """Write clocks after firing: rows with `job_id`, `next_run_at`, `last_slot` (ISO texts or None) and `runs`.

    `last_slot`: the latest slot run or skipped; it never goes back. `runs`: the slots that became runs.
    """
    if clocks:
        ADVANCE.run(**recordset_of("clocks", clocks))
