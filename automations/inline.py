"""Inline routines: what is due starts a heartbeat turn at once, all of an agent's in one turn (rule 5.3).

Outside the active hours, while a heartbeat is at work and while the model is down they stay due: late, never lost.
Lock order: clock, then what is inserted, as in firing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from automations import due, gaps, retries
from automations.active_hours import ActiveHours
from automations.clocks import database_now
from automations.deterministic import DOES, TASKS_KEY
from automations.due import Due, Moved
from automations.jobs import snapshot
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.plan import accounted_to, plan_of
from automations.rest import SHORTEST_REST, at_work, rests_until
from automations.slot_turn import heartbeat_session
from automations.slots import decide, nothing_due, run_id
from sessions_app import events
from sessions_app.models import Agent, EventType, Lane, Session, SessionState, Turn, TurnKind
from sessions_app.sql import Statement, table
from sessions_app.wake import Hint

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 20  # routines of one turn
MOST_AGENTS = 100  # of one look
BUSY = timedelta(seconds=1)  # until a heartbeat that is at work is looked at again
LONGEST_REST = timedelta(hours=1)

_clock, _job, _run = table(JobClock), table(CronJob), table(RunRecord)
_NOW = sa.select(sa.func.now()).scalar_subquery()
# agents by subqueries, for the few rows that are due: a join would be planned as a walk through all jobs
_of_clock = sa.select(_job.c.agent_id).where(_job.c.id == _clock.c.job_id).correlate(_clock)
_of_run = (
    sa.select(_job.c.agent_id)
    .where(_job.c.id == _run.c.job_id, _job.c.execution_mode == sa.literal_column("'inline'"))
    .correlate(_run)
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


@dataclass(kw_only=True)
class _Taken:
    """What becomes of an agent's due routines, before anything is written."""

    runs: list[RunRecord]
    gaps: list[tuple[Due, Any]]
    clocks: list[Moved]
    faults: list[tuple[Due, str]]


def agents_with_due(resting: Iterable[int]) -> list[int]:
    """Agents that have an inline routine due, besides those that rest."""
    return [row.agent_id for row in AGENTS.all(resting=list(resting))]


NEXT = Statement(
    sa.select(
        sa.func.extract("epoch", sa.func.min(_clock.c.next_run_at) - sa.func.now()).label("wait")
    ).where(_clock.c.inline, _clock.c.next_run_at > _NOW)
)


def seconds_to_next() -> float | None:
    """Seconds until the next inline routine is due; None without any."""
    [row] = NEXT.all()
    return None if row.wait is None else float(row.wait)


def start(agent_id: int) -> tuple[Hint | None, timedelta]:
    """Start the agent's due routines in one turn; the hint to send, and how long to leave the agent alone."""
    with transaction.atomic():
        clocks = _locked(agent_id)
        if not clocks:
            return None, BUSY
        agent = Agent.objects.get(pk=agent_id)
        session, wait = _ready(agent)
        if session is None:
            return None, wait
        hint = _queue(agent, session, clocks)
    return hint, timedelta(0) if hint else BUSY


def _locked(agent_id: int) -> list[JobClock]:
    """The clocks of what is due, locked; which are, is read again behind the lock."""
    attempt = RunRecord.objects.filter(job=OuterRef("job_id"), not_before__lte=Now())
    is_due = Q(next_run_at__lte=Now()) | Q(Exists(attempt))
    rows = JobClock.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
    mine = rows.filter(is_due, inline=True, job__agent_id=agent_id)
    return list(mine.order_by("job_id").select_related("job")[:MOST_AT_ONCE])


def _ready(agent: Agent) -> tuple[Session | None, timedelta]:
    """The agent's heartbeat session when it may start something now, else how long to wait."""
    now = database_now()
    first, end = agent.heartbeat["active_hours"]
    opening = ActiveHours(first=first, end=end, timezone=agent.timezone).next_opening(now)
    if opening > now:
        return None, min(opening - now, LONGEST_REST)
    session = heartbeat_session(agent)
    if session.state != SessionState.OPEN:
        return None, LONGEST_REST
    if at_work(session.pk):
        return None, BUSY
    rested = rests_until(session.pk, SHORTEST_REST)
    if rested is not None and rested > now:
        return None, rested - now
    return session, timedelta(0)


def _queue(agent: Agent, session: Session, clocks: list[JobClock]) -> Hint | None:
    """Runs and the turns that they share: one for the model, one for what needs none."""
    taken = _Taken(runs=[], gaps=[], clocks=[], faults=[])
    for clock in clocks:
        _take(clock, database_now(), taken)
    gaps.record_gaps(taken.gaps)
    gaps.record_faults(taken.faults)
    retries.supersede(run.job_id for run in taken.runs)
    due.advance(taken.clocks)
    RunRecord.objects.bulk_create(taken.runs, ignore_conflicts=True)
    waiting = RunRecord.objects.filter(job_id__in=[clock.job_id for clock in clocks], state=RunState.QUEUED)
    attempts = list(
        waiting.filter(Q(turn=None) | Q(not_before__lte=Now()))
        .select_related("job")
        .order_by("scheduled_for")
    )
    plain = [run for run in attempts if run.job.task_type in DOES]
    hints = [
        _turn(agent, session, some, deterministic=some is plain)
        for some in (plain, [run for run in attempts if run not in plain])
        if some
    ]
    return hints[0] if hints else None


def _take(clock: JobClock, now: datetime, taken: _Taken) -> None:
    """What becomes of one due clock; whatever its row makes go wrong stays with it."""
    job, firing = clock.job, clock.next_run_at
    if firing is None or firing > now:
        return  # only an attempt of it is due
    row = _due(clock, firing, now)
    try:
        plan = plan_of(job, clock.runs_started)
        slot = plan.first_slot(firing, accounted_to(clock.last_slot, now))
        decision = nothing_due(slot)
        if slot is not None and slot <= now - plan.jitter:
            open_runs = RunRecord.objects.filter(job=job, state__in=[RunState.QUEUED, RunState.RUNNING])
            decision = decide(
                schedule=plan.slots,
                next_run_at=slot,
                now=now - plan.jitter,
                catch_up=job.catch_up,
                overlap=job.overlap,
                previous_open=open_runs.filter(not_before=None).exists(),
            )
        following = plan.firing_of(decision.next_run_at, runs=len(decision.run))
    except Exception as error:  # noqa: BLE001 - a row can be poisoned in any way
        log.warning("job_set_aside", job=job.pk, error=str(error))
        taken.faults.append((row, str(error)))
        taken.clocks.append(Moved(job_id=job.pk, next_run_at=None, last_slot=firing))
        return
    taken.runs += [_run_of(job, each, now) for each in decision.run]
    taken.gaps += [(row, gap) for gap in decision.skipped]
    taken.clocks.append(
        Moved(job_id=job.pk, next_run_at=following, last_slot=decision.accounted_to, runs=len(decision.run))
    )


def _due(clock: JobClock, firing: datetime, now: datetime) -> Due:
    return Due(
        job=clock.job,
        next_run_at=firing,
        last_slot=clock.last_slot,
        runs_started=clock.runs_started,
        now=now,
        session_id=None,
        session_state="",
        session_key="",
        open=0,
        waiting=0,
        retrying=0,
    )


def _run_of(job: CronJob, slot: datetime, now: datetime) -> RunRecord:
    late = max(0, round((now - slot).total_seconds() * 1000))
    return RunRecord(
        run_id=run_id(job.pk, slot), job=job, scheduled_for=slot, snapshot=snapshot(job), lag_ms=late
    )


def _turn(agent: Agent, session: Session, attempts: list[RunRecord], *, deterministic: bool) -> Hint:
    """The turn of these attempts, queued, with its event."""
    first = attempts[0]
    content = "Due: " + ", ".join(run.job.name for run in attempts)
    turn = Turn(
        session=session,
        kind=TurnKind.HEARTBEAT,
        lane=Lane.AUTO,
        content=content[:2000],
        metadata={TASKS_KEY: [_task(run) for run in attempts], "deterministic": deterministic},
        idempotency_key=f"due:{first.pk}:{first.attempt}",
    )
    turn.save(force_insert=True)
    told = {"text": turn.content, "kind": turn.kind}
    events.event(turn, agent.pk, EventType.TURN_QUEUED, told).save(force_insert=True)
    RunRecord.objects.filter(pk__in=[run.pk for run in attempts], state=RunState.QUEUED).update(
        turn=turn, not_before=None, session=session, session_key=session.key
    )
    events.announce(session.pk)
    return Hint(session_id=session.pk, lane=Lane.AUTO)


def _task(run: RunRecord) -> dict[str, Any]:
    job = run.job
    return {
        "id": job.pk,
        "title": job.name,
        "description": job.description,
        "task_type": job.task_type,
        "timezone": job.timezone,
    }
