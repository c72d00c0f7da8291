"""Start due inline routines: at once and at any hour, in one heartbeat turn for each home (rule 5.3).

While a heartbeat turn is open or the model is down, they stay due: late, never lost.
Lock order: clock, then the inserted rows, as in the rest of firing.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from automations.firing.fire_jobs import account_for
from automations.firing.insert_runs import trace_slots
from automations.firing.placement import heartbeat_session
from automations.heartbeats.readiness import WaitReason, why_routines_wait
from automations.jobs.clock import database_now
from automations.jobs.provenance import provenance_of
from automations.models import ExecutionMode, JobClock, RunRecord, RunState
from automations.runs.record import due_line, end_run, has_own_session
from automations.turn_kinds.heartbeat import HeartbeatKind
from sessions_app.hints import Hint, send
from sessions_app.limits.policies import policy_of
from sessions_app.models import Agent, Lane, Session, Turn, TurnKind
from sessions_app.queue import enqueue
from sessions_app.sessions.open import archive

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 20  # routines of one agent started together
MOST_AGENTS = 100  # agents started in one step
# seconds until an agent is tried again
AFTER_A_TURN = 1.0  # a heartbeat turn was queued or is open
WHILE_WAITING = 5.0  # the model is down, or the session is closed
AFTER_A_FAULT = 30.0  # an unexpected error


class InlineRoutineStarter:
    """Starts due routines, one `step` in each tick of beat. It keeps in memory when each agent is tried again."""

    def __init__(self) -> None:
        self._retry_at: dict[int, float] = {}

    def clear_pauses(self) -> None:
        """Try every agent again, because some plan or setting has changed."""
        self._retry_at.clear()

    def step(self) -> float:
        """Start due routines. Returns the seconds until the first agent is tried again; infinite if none waits."""
        now = time.monotonic()
        self._retry_at = {agent: at for agent, at in self._retry_at.items() if at > now}
        hints: list[Hint] = []
        try:
            for agent_id in agents_with_due_routines(self._retry_at):
                hint, pause = _start_safely(agent_id)
                self._retry_at[agent_id] = now + pause
                hints += [hint] if hint else []
        finally:
            send(hints)
        return min(self._retry_at.values(), default=math.inf) - now


def _start_safely(agent_id: int) -> tuple[Hint | None, float]:
    """Do what `start_due_routines` does; an error with one agent does not stop the others."""
    try:
        return start_due_routines(agent_id)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("due_tasks_failed", agent=agent_id)
        return None, AFTER_A_FAULT


def agents_with_due_routines(paused: Iterable[int]) -> list[int]:
    """Agents with a due inline routine, without these `paused` agents and agents of inactive owners."""
    slots = JobClock.objects.filter(inline=True, next_run_at__lte=Now())
    attempts = RunRecord.objects.filter(not_before__lte=Now(), job__clock__inline=True)
    found: dict[int, None] = {}
    for rows in (slots, attempts):
        of_active = rows.filter(job__agent__owner__is_active=True).exclude(job__agent__in=paused)
        found |= dict.fromkeys(of_active.values_list("job__agent_id", flat=True).distinct()[:MOST_AGENTS])
    return list(found)


def start_due_routines(agent_id: int) -> tuple[Hint | None, float]:
    """Queue the turns of the agent's due routines. Returns the hint to send, and the seconds until the next try."""
    with transaction.atomic():
        # the claim first: a heartbeat that has registered one of these routines is seen to be running
        clocks = _claim(agent_id)
        agent, now = Agent.objects.select_related("owner").get(pk=agent_id), database_now()
        wait = why_routines_wait(agent, now)
        if wait is None:
            return _queue(agent, clocks, now), AFTER_A_TURN
        if wait.reason is WaitReason.MODEL_DOWN:
            reminders = _claim(agent_id, job__task_type__gt="")
            return _queue(agent, reminders, now), WHILE_WAITING
        return None, AFTER_A_TURN if wait.reason is WaitReason.SESSION_BUSY else WHILE_WAITING


def _claim(agent_id: int, **which: Any) -> list[JobClock]:
    """Lock the clocks of the agent's inline routines that have a due slot or a due attempt of a run."""
    attempt = RunRecord.objects.filter(job=OuterRef("pk"), not_before__lte=Now())
    clocks = JobClock.objects.filter(inline=True, job__agent_id=agent_id, **which)
    return list(
        clocks.filter(Q(next_run_at__lte=Now()) | Exists(attempt))
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .order_by("pk")[:MOST_AT_ONCE]
    )


def _queue(agent: Agent, clocks: list[JobClock], now: datetime) -> Hint | None:
    """Insert runs, and one turn for the runs of one home. Runs that need no model get a turn of their own.

    A turn's result goes to its home alone, so nothing crosses from one conversation to another. A routine with caps has
    a turn of its own, so that they stop no other one.
    """
    if not clocks:
        return None
    _insert_runs([clock.pk for clock in clocks if clock.next_run_at and clock.next_run_at <= now], now)
    waiting = RunRecord.objects.filter(job_id__in=[clock.pk for clock in clocks], state=RunState.QUEUED)
    attempts = waiting.filter(Q(turn=None) | Q(not_before__lte=Now())).select_related("job")
    groups: dict[tuple[bool, uuid.UUID | None, str], list[RunRecord]] = {}
    for run in attempts.order_by("scheduled_for"):
        if not _ended_by_mode_change(run):
            needs_model = not run.of_job.task_type
            capped = run.of_job.pk if run.of_job.limits else ""
            groups.setdefault((needs_model, run.of_job.home_id, capped), []).append(run)
    session = heartbeat_session(agent)
    for key in sorted(groups, key=lambda key: key[0]):  # reminders do not wait for the model
        _queue_turn(agent, session, groups[key], deterministic=not key[0])
    return Hint(session_id=session.pk, lane=Lane.AUTO) if groups else None


def _insert_runs(job_ids: list[str], now: datetime) -> None:
    """Decide about the due slots of these jobs, and insert runs. They have no turn yet."""
    rows = [RunRecord(**run.columns) for run in account_for(job_ids, now)]
    RunRecord.objects.bulk_create(rows, ignore_conflicts=True)
    transaction.on_commit(lambda: trace_slots(run.pk for run in rows), robust=True)


def _ended_by_mode_change(run: RunRecord) -> bool:
    """End a run that began in its own session and whose routine is inline now; whether it was ended.

    If the routine is isolated still, `scheduler.cron_jobs` is off: the run goes on in the heartbeat, and only its own
    session is archived.
    """
    if not has_own_session(run):
        return False
    if run.of_job.execution_mode == ExecutionMode.INLINE:
        return end_run(run, "edited")
    if run.session_id is not None:
        archive(run.session_id)
    return False


def _queue_turn(agent: Agent, session: Session, attempts: list[RunRecord], *, deterministic: bool) -> None:
    """Queue the turn of these attempts, which have one home.

    A single run's turn names the run as its origin, as any slot's turn does; several that share it are
    in its input.
    """
    first, is_alone = attempts[0], len(attempts) == 1
    tasks = tuple(_task(run) for run in attempts)
    limits = policy_of(HeartbeatKind.policy, agent.policy)
    given = replace(
        provenance_of(run.of_job for run in attempts),
        tasks=tasks,
        home=tasks[0]["home"],
        deterministic=deterministic,
        runs=() if is_alone else tuple(run.pk for run in attempts),
        policy=limits.strictest(*(run.snapshot["policy"] for run in attempts)),
        caps={run.of_job.pk: run.of_job.limits for run in attempts if run.of_job.limits},
    )
    turn = Turn(
        session=session,
        kind=TurnKind.HEARTBEAT,
        lane=Lane.AUTO,
        content=due_line(tasks),
        metadata=given.to_json(),
        origin_run=first.pk if is_alone else "",
        origin_attempt=first.attempt if is_alone else 0,
        idempotency_key=f"due:{first.pk}:{first.attempt}",
    )
    enqueue.enqueue(turn)
    runs = RunRecord.objects.filter(pk__in=[run.pk for run in attempts])
    runs.queue_in(turn, session=session, session_key=session.key)


def _task(run: RunRecord) -> dict[str, Any]:
    """An entry of the turn's `tasks`: the routine that the heartbeat is to do, and in which run."""
    job = run.of_job
    return {
        "id": job.pk,
        "run": run.pk,
        "home": str(job.home_id or ""),
        "title": job.name,
        "description": "\n".join(filter(None, (job.description, job.message))),
        "task_type": job.task_type,
        "timezone": job.timezone,
    }
