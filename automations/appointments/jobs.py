"""Automations, routines and heartbeats as appointments: which jobs there are, and their facts."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Case, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from automations.heartbeats.readiness import WaitReason, why_routines_wait
from automations.jobs.causes import JobFacts
from automations.jobs.explain import is_off, read_facts
from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from automations.models.health import FAILING_AFTER, health_of
from automations.models.job import Category, category
from automations.selectors import paused_until, with_runs
from sessions_app.models import PRIMARY_KEY, Session
from sessions_app.tokens.reach import in_agents, limit_of

MOST_JOBS = 100
_HOLDS = {
    WaitReason.SESSION_CLOSED: "the heartbeat's session is closed",
    WaitReason.SESSION_BUSY: "the previous heartbeat has not ended",
    WaitReason.MODEL_DOWN: "the model did not answer the last heartbeats",
    WaitReason.OWNER_INACTIVE: "the owner's account is inactive",
}


class Kind(StrEnum):
    """The kinds of appointments."""

    AUTOMATION = "automation"
    ROUTINE = "routine"
    HEARTBEAT = "heartbeat"
    MESSAGE = "message"


_ROUTINE = ~Q(execution_mode=ExecutionMode.SESSION)
_OF_KIND = {
    Kind.AUTOMATION: Q(session__isnull=False),
    Kind.ROUTINE: _ROUTINE,
    Kind.HEARTBEAT: Q(system_event=HEARTBEAT),
}


def job_rows(user: AbstractBaseUser, kinds: Iterable[Kind] = tuple(_OF_KIND)) -> QuerySet[Any]:
    """The user's automations, routines and heartbeats, with everything that an appointment is made of.

    `lives_in`, `lives_title`: the session that gets the results. `ended_as`, `ended_run`: state and id of the last run
    that succeeded, failed or was given up after an error; runs from before a one-time job was rescheduled do not count.
    What needs attention comes first, then what is next.
    """
    which = Q(pk__in=[])
    for kind in kinds:
        which |= _OF_KIND[kind]
    since = Coalesce(OuterRef("at"), Value(datetime.min.replace(tzinfo=UTC)))
    ended = RunRecord.objects.ended_by_itself().filter(job=OuterRef("pk"), scheduled_for__gte=since)
    last = ended.order_by("-scheduled_for")
    primary = Session.objects.filter(agent=OuterRef("agent"), key=PRIMARY_KEY)
    rows: QuerySet[Any] = (
        with_runs(CronJob.objects.filter(which, _reached(user), agent__owner_id=user.pk))
        .annotate(
            ended_as=Subquery(last.values("state")[:1]),
            ended_run=Subquery(last.values("run_id")[:1]),
            lives_in=Coalesce("session_id", "home_id", Subquery(primary.values("pk")[:1])),
            lives_title=Coalesce("session__title", "home__title", Subquery(primary.values("title")[:1])),
        )
        .order_by(
            Case(When(fault="", then=Value(1)), default=Value(0)),
            "-enabled",
            F("clock__next_run_at").asc(nulls_last=True),
            "pk",
        )
    )
    return rows


def _reached(user: AbstractBaseUser) -> Q:
    """Condition: jobs that the token reaches. A token limited to a session reaches no routine and no heartbeat."""
    limit = limit_of(user)
    return in_agents(user) if limit.session_id is None else Q(session_id__in=limit.session_ids)


def jobs_of_sessions(user: AbstractBaseUser, session_ids: Iterable[uuid.UUID]) -> list[Any]:
    """The jobs that live in these sessions of the user: `session_ids` are known to be theirs."""
    return list(job_rows(user).filter(lives_in(list(session_ids)))[:MOST_JOBS])


def lives_in_sessions(user: AbstractBaseUser, job_id: str, session_ids: Iterable[uuid.UUID]) -> bool:
    """Whether a job of the user lives in one of these sessions."""
    return job_rows(user).filter(lives_in(list(session_ids)), pk=job_id).exists()


def lives_in(ids: list[uuid.UUID]) -> Q:
    """Condition: jobs whose results these sessions get."""
    agents = list(Session.objects.filter(pk__in=ids, key=PRIMARY_KEY).values_list("agent_id", flat=True))
    of_primary = Q(system_event=HEARTBEAT) | _ROUTINE & Q(home=None)
    return Q(session_id__in=ids) | Q(home_id__in=ids) | Q(agent_id__in=agents) & of_primary


def appointment_kind(job: Any) -> Kind:
    """The kind of a row of `job_rows`."""
    match category(job):
        case Category.SYSTEM:
            return Kind.HEARTBEAT
        case Category.ROUTINE:
            return Kind.ROUTINE
    return Kind.AUTOMATION


def about_job(job: Any) -> dict[str, Any]:
    """The fields of entries and notices that say which job a row of `job_rows` is, and where it lives."""
    return {
        "kind": appointment_kind(job).value,
        "id": job.pk,
        "name": job.name,
        "session_id": job.lives_in,
        "title": job.lives_title or "",
        "agent": job.agent.name,
    }


def can_retry(job: Any) -> bool:
    """Whether a failed run of the job can be tried again: it is not paused, and no heartbeat."""
    return job.enabled and paused_until(job) is None and appointment_kind(job) is not Kind.HEARTBEAT


def is_failing(job: Any) -> bool:
    """Whether an error has disabled the job, or its last run failed, or its last runs succeeded without doing their
    job.
    """
    health = health_of(job)
    if job.fault or health.paused_reason:
        return True
    return job.enabled and (has_failed(job) or health.failures_in_a_row >= FAILING_AFTER)


def has_failed(job: Any) -> bool:
    """Whether the last run failed, or was given up after an error."""
    return job.ended_as is not None and job.ended_as != RunState.SUCCEEDED


def appointment_state(job: Any) -> str:
    """`paused`, `off` (a heartbeat), or one of selectors.STATES."""
    state: str = job.state
    if state != "scheduled" or (job.enabled and paused_until(job) is None):
        return state
    return "off" if is_off(job) else "paused"


def job_facts(jobs: Sequence[Any]) -> list[JobFacts]:
    """The facts of these rows, with what holds back due inline routines."""
    held: dict[tuple[int, bool], str] = {}
    found = []
    for facts in read_facts(jobs):
        job, due = facts.job, facts.job.clock.next_run_at
        held_by = ""
        if job.clock.inline and due is not None and due <= facts.now:
            key = job.agent_id, not job.task_type
            if key not in held:
                wait = why_routines_wait(job.agent, facts.now, need_model=not job.task_type)
                held[key] = _HOLDS[wait.reason] if wait else ""
            held_by = held[key]
        found.append(replace(facts, held_by=held_by))
    return found
