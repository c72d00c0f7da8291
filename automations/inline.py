"""Inline routines: what is due starts a heartbeat turn at once, all of an agent's in one turn (rule 5.3).

Outside the active hours, while a heartbeat is at work and while the model is down they stay due: late, never lost.
Lock order: clock, then what is inserted, as in firing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from django.db import transaction
from django.db.models import Min, Q
from django.db.models.functions import Now

from agent_core.policy import TurnPolicy
from automations import due
from automations.batch import Batch, milliseconds
from automations.clocks import database_now
from automations.deterministic import DOES, TASKS_KEY, due_line
from automations.due import Due
from automations.endings import end_run, has_own_session
from automations.jobs import snapshot
from automations.models import CronJob, ExecutionMode, JobClock, RunRecord, RunState
from automations.rest import Held, WaitReason, held
from automations.slot_turn import heartbeat_session, placed
from automations.slots import run_id
from sessions_app import events
from sessions_app.archive import archive
from sessions_app.kinds import kind_of
from sessions_app.models import Agent, Lane, Session, Turn, TurnKind
from sessions_app.sql import Statement, table
from sessions_app.wake import Hint

MOST_AT_ONCE = 20  # routines of one turn
MOST_AGENTS = 100  # of one look
BUSY = timedelta(seconds=1)  # until a heartbeat that is at work is looked at again
LONGEST_REST = timedelta(hours=1)

_WITHOUT_MODEL: Any = [sa.literal_column(f"'{name}'") for name in sorted(DOES)]
_clock, _job, _run = table(JobClock), table(CronJob), table(RunRecord)
_NOW = sa.select(sa.func.now()).scalar_subquery()
# agents by subqueries, for the few rows that are due: a join would be planned as a walk through all jobs
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
CLAIM = Statement(  # which are due is read again behind the lock
    due.CLOCKS.add_columns(_is_slot.label("is_slot"))
    .where(
        _clock.c.inline,
        _clock.c.job_id.in_(
            sa.select(_job.c.id).where(
                _job.c.agent_id == sa.bindparam("agent_id"),
                sa.or_(
                    ~sa.bindparam("without_model", type_=sa.Boolean()), _job.c.task_type.in_(_WITHOUT_MODEL)
                ),
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
    .where(
        _both.c.agent_id.is_not(None),
        _both.c.agent_id != sa.all_(sa.bindparam("resting", type_=sa.ARRAY(sa.BigInteger()))),
    )
    .limit(MOST_AGENTS)
)


def agents_with_due(resting: Iterable[int]) -> list[int]:
    """Agents that have an inline routine due, besides those that rest."""
    return [row.agent_id for row in AGENTS.all(resting=list(resting))]


def start(agent_id: int) -> tuple[Hint | None, timedelta]:
    """Start the agent's due routines in one turn; the hint to send, and how long to leave the agent alone."""
    with transaction.atomic():
        clocks = CLAIM.all(agent_id=agent_id, without_model=False)
        if not clocks:
            return None, BUSY
        agent, now = Agent.objects.get(pk=agent_id), database_now()
        what = held(agent, now)
        if what is not None and what.reason is WaitReason.MODEL_DOWN:
            clocks = CLAIM.all(agent_id=agent_id, without_model=True)
            if not clocks:
                return None, max(BUSY, min(_length(what, now), _until_reminder(agent_id, now)))
        elif what is not None:
            return None, _length(what, now)
        return _queue(agent, heartbeat_session(agent), clocks), BUSY


def _length(what: Held, now: datetime) -> timedelta:
    """How long to leave an agent alone that is held up."""
    if what.until is None:
        return BUSY if what.reason is WaitReason.SESSION_BUSY else LONGEST_REST
    return max(BUSY, min(what.until - now, LONGEST_REST))


def _until_reminder(agent_id: int, now: datetime) -> timedelta:
    """Until the agent's next routine is due that needs no model."""
    clocks = JobClock.objects.filter(job__agent_id=agent_id, inline=True, next_run_at__isnull=False)
    first = clocks.filter(job__task_type__in=DOES).aggregate(first=Min("next_run_at"))["first"]
    return LONGEST_REST if first is None else first - now


def _queue(agent: Agent, session: Session, clocks: list[Any]) -> Hint | None:
    """Runs and the turns that they share: one for the model, one for what needs none."""
    batch = Batch(run_of=_run_of)
    batch.take(placed(due.of([clock for clock in clocks if clock.is_slot])))
    batch.write()
    RunRecord.objects.bulk_create(batch.runs, ignore_conflicts=True)
    waiting = RunRecord.objects.filter(job_id__in=[clock.job_id for clock in clocks], state=RunState.QUEUED)
    attempts = list(
        waiting.filter(Q(turn=None) | Q(not_before__lte=Now()))
        .select_related("job")
        .order_by("scheduled_for")
    )
    attempts = [run for run in attempts if not _fits_no_more(run)]
    plain = [run for run in attempts if run.of_job.task_type in DOES]
    thought_about = [run for run in attempts if run.of_job.task_type not in DOES]
    for some in (plain, thought_about):
        if some:
            _turn(agent, session, some, deterministic=some is plain)
    return Hint(session_id=session.pk, lane=Lane.AUTO) if attempts else None


def _run_of(row: Due, slot: datetime, late: timedelta) -> RunRecord:
    return RunRecord(
        run_id=run_id(row.job.pk, slot),
        job=row.job,
        scheduled_for=slot,
        snapshot=snapshot(row.job),
        lag_ms=milliseconds(late),
    )


def _fits_no_more(run: RunRecord) -> bool:
    """A run that began in a session of its own ends when its routine has become inline since.

    While `scheduler.cron_jobs` is off it goes on with the heartbeat, and its session is done with.
    """
    if not has_own_session(run):
        return False
    if run.of_job.execution_mode == ExecutionMode.INLINE:
        return end_run(run, "edited")
    if run.session_id is not None:
        archive(run.session_id)
    return False


def _turn(agent: Agent, session: Session, attempts: list[RunRecord], *, deterministic: bool) -> None:
    """The turn of these attempts, queued, with its event."""
    first = attempts[0]
    tasks = [_task(run) for run in attempts]
    turn = Turn(
        session=session,
        kind=TurnKind.HEARTBEAT,
        lane=Lane.AUTO,
        content=due_line(tasks),
        metadata={TASKS_KEY: tasks, "deterministic": deterministic},
        idempotency_key=f"due:{first.pk}:{first.attempt}",
    )
    limits = TurnPolicy().merged(kind_of(turn).policy, agent.policy)
    turn.metadata["policy"] = limits.strictest(*(run.snapshot["policy"] for run in attempts))
    events.queued(turn, agent.pk)
    RunRecord.objects.filter(pk__in=[run.pk for run in attempts], state=RunState.QUEUED).update(
        turn=turn, not_before=None, session=session, session_key=session.key
    )


def _task(run: RunRecord) -> dict[str, Any]:
    job = run.of_job
    return {
        "id": job.pk,
        "run": run.pk,
        "home": str(job.home_id or ""),
        "title": job.name,
        "description": f"{job.description} {job.message}".strip(),
        "task_type": job.task_type,
        "timezone": job.timezone,
    }
