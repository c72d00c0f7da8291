"""Routines as people see them. Doors start from the user who asks: what is another's does not exist (invariant 10)."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Exists, OuterRef, QuerySet, Subquery

from automations.deterministic import DOES
from automations.exceptions import RoutineNotFound
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.rest import WaitReason, held
from automations.routine_schedule import written
from automations.selectors import state_of
from sessions_app.selectors import agent, with_deliveries


@dataclass(frozen=True, kw_only=True)
class WaitsFor:
    """Why an inline routine that is due is not done yet; `until`: when that is over, where it is known."""

    reason: str
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A routine as people see it. `schedule` is null for one that is done once, which has an `at`.

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
    """Routines with what `routine_of` reads, each asked for in the same statement; the oldest first."""
    runs = RunRecord.objects.filter(job=OuterRef("pk"))
    last = runs.exclude(state=RunState.SKIPPED).order_by("-scheduled_for")
    return (
        CronJob.objects.filter(**which)
        .exclude(execution_mode=ExecutionMode.SESSION)
        .select_related("clock", "agent")
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
    """The routines of an agent, disabled ones too. NotFound."""
    return shown_routines(agent=agent(user, agent_name), agent__owner_id=user.pk)


def routine(user: AbstractBaseUser, routine_id: str) -> Routine:
    """One of the user's. RoutineNotFound."""
    found = shown_routines(agent__owner_id=user.pk, pk=routine_id).first()
    if found is None:
        raise RoutineNotFound
    return routine_of(found)


def routine_runs(user: AbstractBaseUser, routine_id: str) -> QuerySet[RunRecord]:
    """A routine's runs. RoutineNotFound."""
    routine(user, routine_id)
    rows = RunRecord.objects.filter(job_id=routine_id, job__agent__owner_id=user.pk)
    return rows.annotate(shown_deliveries=with_deliveries("message__turn_id", OuterRef("turn_id")))


def _waits_for(job: Any) -> WaitsFor | None:
    now, due = datetime.now(UTC), job.clock.next_run_at
    if not (job.clock.inline and due is not None and due <= now):
        return None
    what = held(job.agent, now)
    if what is None or (what.reason is WaitReason.MODEL_DOWN and job.task_type in DOES):
        return None
    return WaitsFor(reason=what.reason.value, until=what.until)


def routine_of(job: Any) -> Routine:
    """A row of `shown_routines` as people see it."""
    return Routine(
        id=job.pk,
        agent=job.agent.name,
        title=job.name,
        description=job.description,
        instructions=job.message,
        schedule=written(job),
        at=job.at,
        timezone=job.timezone,
        execution_mode=job.execution_mode,
        task_type=job.task_type,
        enabled=job.enabled,
        source=job.source,
        timeout_seconds=job.timeout_seconds,
        policy=job.policy,
        max_retry=job.max_retry,
        next_run_at=job.clock.next_run_at,
        last_run_at=job.last_run_at,
        state=state_of(job),
        waits_for=_waits_for(job),
        last_status=job.last_status,
        pending=job.pending,
        attempt=job.last_attempt or 0,
        error=job.last_error or None,
        session=job.home_id,
        created_at=job.created_at,
        revision=job.revision,
    )
