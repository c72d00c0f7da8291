"""The SQL of firing that reads inline routines: agents with a due routine, and the clocks of those routines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from automations.heartbeats.reminders import MODEL_FREE_TASKS
from automations.models import CronJob, JobClock, RunRecord
from sessions_app import owners
from sessions_app.models import Agent
from sessions_app.postgres.statements import Statement, table

MOST_AT_ONCE = 20  # routines of one agent started together
MOST_AGENTS = 100  # returned at once

_MODEL_FREE: Any = [sa.literal_column(f"'{name}'") for name in sorted(MODEL_FREE_TASKS)]
_clock, _job, _run, _agent = table(JobClock), table(CronJob), table(RunRecord), table(Agent)
_NOW = sa.select(sa.func.now()).scalar_subquery()
# agents by subqueries, for the few due rows: a join would be planned as a scan of all jobs
_of_clock = sa.select(_job.c.agent_id).where(_job.c.id == _clock.c.job_id).correlate(_clock)
_of_run = (
    sa.select(_job.c.agent_id)
    .where(
        _job.c.id == _run.c.job_id,
        sa.exists(sa.select(1).where(_clock.c.job_id == _job.c.id, _clock.c.inline)),
    )
    .correlate(_run)
)
_attempt = sa.exists(
    sa.select(1).where(_run.c.job_id == _clock.c.job_id, _run.c.not_before <= _NOW).correlate(_clock)
)
_is_slot = sa.func.coalesce(_clock.c.next_run_at <= sa.func.now(), sa.false())
CLAIM = Statement(  # what is due is read again after the lock
    sa.select(_clock.c.job_id, _is_slot.label("is_slot"))
    .where(
        _clock.c.inline,
        _clock.c.job_id.in_(
            sa.select(_job.c.id).where(
                _job.c.agent_id == sa.bindparam("agent_id"),
                sa.or_(~sa.bindparam("model_free", type_=sa.Boolean()), _job.c.task_type.in_(_MODEL_FREE)),
            )
        ),
        sa.or_(_is_slot, _attempt),
    )
    .order_by(_clock.c.job_id)
    .limit(MOST_AT_ONCE)
    .with_for_update(skip_locked=True, key_share=True, of=_clock)
)
_slots = sa.select(_of_clock.scalar_subquery().label("agent_id")).where(
    _clock.c.inline, _clock.c.next_run_at <= _NOW
)
_attempts = sa.select(_of_run.scalar_subquery().label("agent_id")).where(_run.c.not_before <= _NOW)
_both = sa.union(_slots, _attempts).subquery()
AGENTS = Statement(
    sa.select(_both.c.agent_id)
    .join(_agent, _agent.c.id == _both.c.agent_id)
    .where(
        owners.is_active(_agent.c.owner_id),
        _both.c.agent_id != sa.all_(sa.bindparam("paused", type_=sa.ARRAY(sa.BigInteger()))),
    )
    .limit(MOST_AGENTS)
)


def agents_with_due_routines(paused: Iterable[int]) -> list[int]:
    """Agents with a due inline routine, without these `paused` agents and agents of inactive owners."""
    return [row.agent_id for row in AGENTS.all(paused=list(paused))]


def claim_due_routines(agent_id: int, *, model_free: bool) -> list[Any]:
    """Lock the clocks of the agent's due inline routines; with `model_free` of those that need no model.

    Rows with `job_id` and `is_slot`: a slot is due; otherwise another attempt of a run is.
    """
    return CLAIM.all(agent_id=agent_id, model_free=model_free)
