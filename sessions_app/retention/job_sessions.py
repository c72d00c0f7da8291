"""Remove archived sessions of jobs, by age and by the number that one job has (rule 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from sessions_app.models import Session, SessionState, SessionType
from sessions_app.postgres import statements
from sessions_app.postgres.statements import Statement, table
from sessions_app.retention.walk import LIMIT, WalkStep, old
from sessions_app.sessions.delete import remove_archived

AT_ONCE = 20  # sessions of one batch; each is removed with its turns, messages and events
JOBS = 100  # jobs that one batch looks at
KEPT_PER_JOB = 50  # newest sessions of one job; the rest is removed whatever its age
_session = table(Session)
_AGENT, _JOB = sa.bindparam("agent", type_=sa.BigInteger()), sa.bindparam("job", type_=sa.Text())
_days, _keep = (sa.bindparam(name, type_=sa.Integer()) for name in ("days", "keep"))


def _ended(rows: Any) -> Any:
    """Condition: an archived session of a job, written as the partial index has it."""
    return sa.and_(
        rows.c.type == sa.literal_column(f"'{SessionType.JOB}'"),
        rows.c.state == sa.literal_column(f"'{SessionState.ARCHIVED}'"),
    )


def _of_jobs() -> Statement:
    """Select the jobs after `:agent, :job` that have archived sessions."""
    found = statements.heads(
        _session,
        ("agent_id", "chat_id"),
        ("agent_id", "chat_id"),
        ("created_at",),
        lambda rows: sa.and_(
            _ended(rows), sa.tuple_(rows.c.agent_id, rows.c.chat_id) > sa.tuple_(_AGENT, _JOB)
        ),
    )
    return Statement(
        sa.select(found.c.agent_id, found.c.chat_id).where(found.c.agent_id.is_not(None)).limit(LIMIT)
    )


def _over() -> Statement:
    """Select the sessions of `:agents, :jobs` that are too many or too old."""
    given = sa.func.unnest(
        sa.bindparam("agents", type_=sa.ARRAY(sa.BigInteger())),
        sa.bindparam("jobs", type_=sa.ARRAY(sa.Text())),
    )
    columns = (sa.column("agent_id", sa.BigInteger()), sa.column("chat_id", sa.Text()))
    job = given.table_valued(*columns, name="job").render_derived()

    def theirs(rows: Any) -> Any:
        return sa.and_(rows.c.agent_id == job.c.agent_id, rows.c.chat_id == job.c.chat_id, _ended(rows))

    too_many = (
        sa.select(_session.c.id)
        .where(theirs(_session), _keep > 0)
        .order_by(_session.c.created_at.desc())
        .offset(_keep)
        .limit(LIMIT)
        .correlate(job)
    )
    old_ones = _session.alias()
    too_old = (
        sa.select(old_ones.c.id)
        .where(theirs(old_ones), _days > 0, old(old_ones.c.updated_at))
        .order_by(old_ones.c.created_at)
        .limit(LIMIT)
        .correlate(job)
    )
    rows = sa.union(*(sa.select(each.subquery().c.id) for each in (too_many, too_old))).lateral("over")
    return Statement(
        sa.select(job.c.agent_id, job.c.chat_id, rows.c.id)
        .select_from(job.join(rows, sa.true()))
        .limit(LIMIT)
    )


OF_JOBS, OVER = _of_jobs(), _over()


@dataclass(frozen=True, kw_only=True)
class JobSessionsWalk:
    """Removes sessions of background jobs that ended long ago, or that exceed the number kept for the job."""

    name: str = "job sessions"

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Handle the next jobs, as far as the sessions fit in one batch."""
        days, most = settings.RONDO_KEEP_JOB_SESSIONS_DAYS, min(limit, AT_ONCE)
        jobs = OF_JOBS.all(agent=position.get("agent", 0), job=position.get("job", ""), limit=JOBS)
        if not jobs:
            return WalkStep()
        rows = OVER.all(
            agents=[row.agent_id for row in jobs],
            jobs=[row.chat_id for row in jobs],
            days=days,
            keep=KEPT_PER_JOB,
            limit=None if dry else most,
        )
        gone = len(rows) if dry or not rows else remove_archived([row.id for row in rows])
        if len(rows) == most and gone and not dry:
            # the last job may have more sessions: the next batch begins with it
            last = (rows[-1].agent_id, rows[-1].chat_id)
            done = [row for row in rows if (row.agent_id, row.chat_id) != last]
            return WalkStep(removed=gone, position=_at(done[-1]) if done else position, more=True)
        more = len(jobs) == JOBS
        return WalkStep(removed=gone, position=_at(jobs[-1]) if more else {}, more=more)


def _at(row: Any) -> dict[str, Any]:
    return {"agent": row.agent_id, "job": row.chat_id}
