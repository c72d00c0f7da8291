"""Read routines for people. Every read starts from the user: other users' rows do not exist for them (invariant 10)."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Exists, OuterRef, QuerySet, Subquery

from automations.exceptions import RoutineNotFound
from automations.heartbeats.readiness import MODEL_FREE_TASKS, WaitReason, why_routines_wait
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.routines.schedule_text import routine_schedule_text
from automations.selectors import runs_of_job, state_of
from sessions_app.postgres.pages import PagedQuery
from sessions_app.reads.selectors import agent
from sessions_app.tokens.limits import in_agents

_STATES = {"scheduled": "pending"}  # states that the document spells differently
_SAME_NAMES = (  # fields of Routine that a row has by the same name
    *("description", "at", "timezone", "execution_mode", "task_type", "enabled", "source", "timeout_seconds"),
    *("policy", "max_retry", "last_run_at", "last_status", "pending", "created_at", "revision"),
)


@dataclass(frozen=True, kw_only=True)
class WaitsFor:
    """Why a due inline routine has not started; `until`: when the wait is over, if known."""

    reason: str
    until: datetime | None


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
    max_retry: int
    next_run_at: datetime | None
    last_run_at: datetime | None
    state: str
    waits_for: WaitsFor | None
    last_status: str | None
    pending: bool
    attempt: int
    error: str | None
    session: uuid.UUID | None
    created_at: datetime
    revision: int

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, with instants in ISO."""
        return {name: _plain(value) for name, value in asdict(self).items()}


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
    return (
        CronJob.objects.filter(**which)
        .exclude(execution_mode=ExecutionMode.SESSION)
        .select_related("clock", "agent__owner")
        .annotate(
            last_status=Subquery(last.values("state")[:1]),
            last_run_at=Subquery(last.values("started_at")[:1]),
            last_attempt=Subquery(last.values("attempt")[:1]),
            last_error=Subquery(last.values("error")[:1]),
            runs_now=Exists(runs.filter(state=RunState.RUNNING)),
            pending=Exists(runs.filter(state=RunState.QUEUED)),
        )
        .order_by("created_at", "id")
    )


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


def _waits_for(job: Any) -> WaitsFor | None:
    now, due = datetime.now(UTC), job.clock.next_run_at
    if not (job.clock.inline and due is not None and due <= now):
        return None
    what = why_routines_wait(job.agent, now)
    if what is None or (what.reason is WaitReason.MODEL_DOWN and job.task_type in MODEL_FREE_TASKS):
        return None
    return WaitsFor(reason=what.reason.value, until=what.until)


def routine_of(job: Any) -> Routine:
    """A row of `shown_routines` as people see it."""
    return Routine(
        id=job.pk,
        agent=job.agent.name,
        title=job.name,
        instructions=job.message,
        schedule=routine_schedule_text(job),
        next_run_at=job.clock.next_run_at,
        state=state_of(job),
        waits_for=_waits_for(job),
        attempt=job.last_attempt or 0,
        error=job.last_error or None,
        session=job.home_id,
        **{name: getattr(job, name) for name in _SAME_NAMES},
    )


def _state_in_document(routine: Routine) -> str:
    """A failed one-time routine is failed until it is rescheduled; a repeating one is pending, with its error."""
    is_over = routine.schedule is None and routine.next_run_at is None
    if is_over and routine.last_status == RunState.FAILED:
        return "failed"
    return _STATES.get(routine.state, routine.state)


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
