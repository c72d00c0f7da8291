"""Read routines for people. Every read starts from the user: other users' rows do not exist for them (invariant 10)."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import OuterRef, QuerySet, Subquery

from automations.exceptions import RoutineNotFound
from automations.heartbeats.readiness import Wait, why_routines_wait
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.routines.plan import routine_schedule_text
from automations.selectors import Health, health_shown, pause_shown, runs_of_job, with_runs
from sessions_app.postgres.pages import PagedQuery
from sessions_app.reads.selectors import agent
from sessions_app.tokens.reach import in_agents


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A routine as people see it. A one-time routine has `at` instead of `schedule`.

    `session`: null for the primary one. `state` is one of selectors.STATES. `attempt`, `error`: of its last run.
    """

    id: str
    agent: str
    title: str
    description: str
    instructions: str
    schedule: str | None
    at: datetime | None
    timezone: str
    execution_mode: str
    task_type: str
    enabled: bool
    source: str
    timeout_seconds: int | None
    policy: dict[str, Any]
    gate: dict[str, Any] | None
    limits: dict[str, Any]
    zone: str  # the agent's, whose days and months count for the limits
    health: Health
    max_retry: int
    next_run_at: datetime | None
    paused_from: datetime | None
    paused_until: datetime | None
    last_run_at: datetime | None
    state: str
    waits_for: Wait | None
    last_status: str | None
    pending: bool
    attempt: int
    error: str | None
    session: uuid.UUID | None
    created_at: datetime
    revision: int

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, with instants in ISO."""
        return {name: _plain(value) for name, value in asdict(self).items() if name != "zone"}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, uuid.UUID) else value


def shown_routines(**which: Any) -> QuerySet[Any]:
    """Routines with everything that `routine_of` reads, in one statement; the oldest first."""
    runs = RunRecord.objects.filter(job=OuterRef("pk"))
    last = runs.exclude(state=RunState.SKIPPED).order_by("-scheduled_for")
    rows: QuerySet[Any] = (
        with_runs(CronJob.objects.filter(**which).exclude(execution_mode=ExecutionMode.SESSION))
        .select_related("agent__owner")
        .annotate(
            last_run_at=Subquery(last.values("started_at")[:1]),
            last_attempt=Subquery(last.values("attempt")[:1]),
            last_error=Subquery(last.values("error")[:1]),
        )
        .order_by("created_at", "id")
    )
    return rows


def routines_of(user: AbstractBaseUser, agent_name: str) -> QuerySet[Any]:
    """The routines of an agent, including disabled ones. NotFound."""
    return shown_routines(agent=agent(user, agent_name), agent__owner_id=user.pk)


def routine(user: AbstractBaseUser, routine_id: str) -> Routine:
    """One of the user's routines. RoutineNotFound."""
    found = shown_routines(agent__owner_id=user.pk, pk=routine_id).filter(in_agents(user)).first()
    if found is None:
        raise RoutineNotFound
    return routine_of(found)


def routine_runs(user: AbstractBaseUser, routine_id: str) -> PagedQuery[Any]:
    """A routine's runs. RoutineNotFound."""
    routine(user, routine_id)
    return runs_of_job(user, CronJob.objects.filter(pk=routine_id, agent__owner_id=user.pk))


def _waits_for(job: Any) -> Wait | None:
    """Why a due inline routine has not started."""
    now, due = datetime.now(UTC), job.clock.next_run_at
    if not (job.clock.inline and due is not None and due <= now):
        return None
    return why_routines_wait(job.agent, now, need_model=not job.task_type)


def routine_of(job: Any) -> Routine:
    """A row of `shown_routines` as people see it."""
    shown = {
        "agent": job.agent.name,
        "title": job.name,
        "instructions": job.message,
        "schedule": routine_schedule_text(job),
        "next_run_at": job.clock.next_run_at,
        **pause_shown(job),
        "waits_for": _waits_for(job),
        "attempt": job.last_attempt or 0,
        "error": job.last_error or None,
        "session": job.home_id,
        "health": health_shown(job),
        "zone": job.agent.timezone,
    }
    same = {each.name: getattr(job, each.name) for each in fields(Routine) if each.name not in shown}
    return Routine(**same, **shown)


def _state_in_document(routine: Routine) -> str:
    """A failed one-time routine is failed until it is rescheduled; a repeating one is pending, with its error."""
    is_over = routine.schedule is None and routine.next_run_at is None
    if is_over and routine.last_status == RunState.FAILED:
        return "failed"
    return "pending" if routine.state == "scheduled" else routine.state


def task_json(routine: Routine) -> dict[str, Any]:
    """A routine as HEARTBEAT.md lists it."""
    shown = routine.to_json()
    always = ("id", "title", "description", "schedule", "timezone", "execution_mode", "source", "enabled")
    task = {name: shown[name] for name in always}
    task |= {name: shown[name] for name in ("instructions", "policy", "task_type") if shown[name]}
    return task | {
        "state": _state_in_document(routine),
        "last_run_at": shown["last_run_at"],
        "next_run_at": shown["next_run_at"] or shown["at"],
        "timeout_seconds": routine.timeout_seconds,
        "retry": max(0, routine.attempt - 1),
        "max_retry": routine.max_retry,
        "error_message": routine.error,
        "created_at": shown["created_at"],
    }
