"""Add, change and remove routines: one service for tools, API, command line and HEARTBEAT.md.

The agent's row is locked to check its limit and duplicates. Lock order, as everywhere: clock, job, agent.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from automations.exceptions import (
    BadJob,
    DuplicateRoutine,
    JobNotFound,
    RoutineNotFound,
    TooManyRoutines,
)
from automations.gates import registry
from automations.jobs.clock import database_now, notify_beats
from automations.jobs.edit import (
    PAUSE,
    changed_pause,
    check_pause,
    delete_job,
    insert_job,
    lock_job,
    lock_session,
    look_at_caps_again,
    write_changes,
)
from automations.jobs.removed_routines import normalised
from automations.jobs.validate import check_quota, count_texts, validated
from automations.models import CronJob, ExecutionMode, JobClock, JobHealth, ScheduleKind
from automations.models.job import Category, Pause, category
from automations.routines.plan import (
    EPOCH,
    PLAN,
    RoutineFields,
    changed_plan,
    check_mode,
    inferred_mode,
    is_started_by_heartbeat,
    moves_the_clock,
    new_plan,
)
from automations.schedules.plan import same_schedule, schedule_columns
from automations.schedules.schedule import Schedule
from sessions_app.exceptions import NotFound, RevisionConflict
from sessions_app.models import Agent, SessionType
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import existing
from sessions_app.queue.threads import find_target
from sessions_app.spending.caps import merge_caps

_SETTINGS = (
    *("title", "description", "instructions", "enabled", "timeout_seconds", "max_retry", "task_type"),
    *("limits", "source"),
)
EDITABLE = PLAN | PAUSE | {*_SETTINGS, "policy", "execution_mode", "gate"} - {"source"}


@dataclass(frozen=True, kw_only=True)
class NewRoutine(RoutineFields):
    """A routine to add.

    `session_id`: the conversation that gets the results; None: the primary one. `routine_id`: the id to use if it is
    free. `ended`: add a one-time routine as done, because it ran elsewhere.
    """

    agent_id: int
    title: str
    gate: Mapping[str, Any] | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    allow_duplicate: bool = False
    session_id: uuid.UUID | None = None
    turn_id: int | None = None
    routine_id: str = ""
    ended: bool = False


def agent_routines(agent_id: int) -> QuerySet[CronJob]:
    """The agent's routines, including disabled ones, the oldest first."""
    rows = CronJob.objects.filter(agent_id=agent_id).exclude(execution_mode=ExecutionMode.SESSION)
    return rows.select_related("clock").order_by("created_at", "id")


def add_routine(given: NewRoutine) -> CronJob:
    """Add a routine. BadJob, TooManyRoutines, DuplicateRoutine, NotFound, SessionClosed."""
    inferred = inferred_mode(given.timeout_seconds, given.description, given.task_type)
    mode = given.execution_mode or (inferred if given.gate is None else ExecutionMode.ISOLATED)
    settings = {name: getattr(given, name) for name in _SETTINGS}
    values = validated(settings | {"policy": dict(given.policy), "execution_mode": mode})
    values["gate"] = None if given.gate is None else registry.checked(given.gate)
    values["limits"] = merge_caps({}, given.limits)
    check_mode(values["execution_mode"], values["task_type"], values["gate"])
    return retry_deadlocks(lambda: _add(given, values))


def _add(given: NewRoutine, values: dict[str, Any]) -> CronJob:
    try:
        with transaction.atomic():
            home_id = _home(given)
            agent = lock_agent(given.agent_id)
            now = database_now()
            zone = given.timezone or agent.timezone
            # an ended one's time may have passed
            known_from = EPOCH if given.ended and given.next_run_at else now
            schedule, first = new_plan(given.schedule, given.next_run_at, zone=zone, now=known_from)
            waits = given.enabled and not given.ended
            if waits:
                if not given.allow_duplicate:
                    _refuse_duplicate(agent.pk, given.title, schedule, now)
                check_routine_limit(agent)
            values = values | {"policy": _without_nulls(values["policy"])}
            columns = _columns(values) | schedule_columns(schedule, zone)
            job = CronJob(agent=agent, home_id=home_id, created_by_turn_id=given.turn_id, **columns)
            if waits:
                check_quota(job, TooManyRoutines)
            insert_job(job, given.routine_id)
            count_texts(job)
            job.clock = JobClock.objects.create(
                job=job,
                inline=is_started_by_heartbeat(job),
                next_run_at=first if waits else None,
                last_slot=first if given.ended else None,
                planned_from=_planned_from(job, first if given.next_run_at else None, now),
            )
            transaction.on_commit(notify_beats, robust=True)
    except IntegrityError as error:  # at the commit: the agent or its session was deleted
        raise NotFound("the agent or the session was deleted just now") from error
    return job


def update_routine(routine_id: str, changes: Mapping[str, Any], *, revision: int | None = None) -> CronJob:
    """Change the given fields only; open runs keep the old values, unless the routine is disabled.

    BadJob, RoutineNotFound, TooManyRoutines; RevisionConflict when `revision` is not the routine's.
    """
    unknown = sorted(set(changes) - EDITABLE)
    if unknown:
        raise BadJob(f"{unknown[0]!r} cannot be changed", code="not_editable")
    checked_apart = PLAN | PAUSE | {"gate"}
    plain = _columns(validated({name: changes[name] for name in changes if name not in checked_apart}))
    if "gate" in changes:
        plain["gate"] = None if changes["gate"] is None else registry.checked(changes["gate"])
    return retry_deadlocks(lambda: _update(routine_id, plain, changes, revision))


def _update(
    routine_id: str, plain: dict[str, Any], changes: Mapping[str, Any], revision: int | None
) -> CronJob:
    with transaction.atomic():
        clock, job = lock_routine(routine_id, revision)
        job.clock = clock
        if "policy" in plain:
            plain = plain | {"policy": _without_nulls(job.policy | plain["policy"])}
        if "limits" in plain:
            plain = plain | {"limits": merge_caps(job.limits, plain["limits"])}
        modes = ("execution_mode", "task_type", "gate")
        if not plain.keys().isdisjoint(modes):
            check_mode(*(plain.get(name, getattr(job, name)) for name in modes))
        now = database_now()
        plan, first = changed_plan(job, changes, now)
        columns = {name: value for name, value in (plain | plan).items() if value != getattr(job, name)}
        pause = _pause(clock, job, changes, now, switched="enabled" in columns)
        if not columns and first is None and pause == clock.pause:
            if job.enabled and plain.get("enabled"):
                JobHealth.objects.begin_afresh(job.pk, now)
            return job
        _change(job, columns, first, now, pause)
        if job.enabled:
            JobHealth.objects.begin_afresh(job.pk, now)
        look_at_caps_again(job, columns.keys())
        transaction.on_commit(notify_beats, robust=True)
    return job


def _pause(
    clock: JobClock, job: CronJob, changes: Mapping[str, Any], now: datetime, *, switched: bool
) -> Pause | None:
    """The new pause. An `enabled` that changes nothing keeps it: HEARTBEAT.md names it each time."""
    if changes.keys().isdisjoint(PAUSE):
        return None if switched else clock.pause
    return changed_pause(clock, job, changes, now)


def remove_routine(routine_id: str, *, hard: bool = False, revision: int | None = None) -> None:
    """Disable a routine, or with `hard` delete it with its runs; a running turn goes on. RoutineNotFound."""
    if not hard:
        update_routine(routine_id, {"enabled": False}, revision=revision)
        return
    with transaction.atomic():
        lock_routine(routine_id, revision)
        delete_job(routine_id)


def lock_agent(agent_id: int) -> Agent:
    """Lock the agent, so that no routine is added until the transaction ends. NotFound."""
    return existing(Agent.objects.select_for_update(no_key=True).filter(pk=agent_id))


def lock_routine(routine_id: str, revision: int | None = None) -> tuple[JobClock, CronJob]:
    """A routine and its clock, both locked. RoutineNotFound, RevisionConflict."""
    try:
        clock, job = lock_job(routine_id, None)
    except JobNotFound:
        raise RoutineNotFound from None
    if category(job) is not Category.ROUTINE:
        raise RoutineNotFound
    if revision is not None and revision != job.revision:
        raise RevisionConflict
    return clock, job


def check_routine_limit(agent: Agent, besides: str = "") -> None:
    """TooManyRoutines. The agent is locked, so two cannot both be the last. Routines without slots do not count."""
    enabled = agent_routines(agent.pk).filter(enabled=True, clock__next_run_at__isnull=False)
    if enabled.exclude(pk=besides).count() >= agent.routine_limit:
        raise TooManyRoutines(f"the agent may have at most {agent.routine_limit} enabled routines")


def _change(
    job: CronJob, columns: dict[str, Any], first: datetime | None, now: datetime, pause: Pause | None
) -> None:
    """Write the changed columns, and move the clock when the plan or the pause changed."""
    clock, before = job.clock, job.clock.pause
    switched = pause != before or columns.get("enabled", job.enabled) != job.enabled
    replanned = first is not None or moves_the_clock(job, columns)
    if not replanned and clock.planned_from > now:
        first = clock.planned_from  # a first run that was given survives a pause
    begins = write_changes(clock, job, columns, now, replanned=replanned, pause=pause)
    if first is not None and clock.pause_at(first):
        first, before = None, None  # it lies in the pause
    check_pause(clock, before)
    clock.inline = is_started_by_heartbeat(job)
    clock.save(update_fields=["inline"])
    if not replanned and not switched:
        return
    if first is not None:
        clock.next_run_at = first if job.enabled else None
        clock.planned_from = _planned_from(job, first, now)
        clock.save(update_fields=["next_run_at", "planned_from"])
    if begins:
        check_routine_limit(lock_agent(job.agent_id), besides=job.pk)
    if clock.next_run_at is not None:
        check_quota(job, TooManyRoutines)


def _planned_from(job: CronJob, first: datetime | None, now: datetime) -> datetime:
    """From when slots count. A given first run of a cron schedule is marked by it, so that zone data do not move it."""
    return first if first is not None and job.schedule_kind == ScheduleKind.CRON else now


def _without_nulls(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy without the limits that are null, which are removed."""
    return {name: limit for name, limit in policy.items() if limit is not None}


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """Fields as columns of a job: the title is its name, the instructions are its message."""
    columns = dict(values)
    if "instructions" in columns:
        columns["message"] = columns.pop("instructions")
    if "title" in columns:
        columns["name"] = columns.pop("title").strip()
    return columns


def _home(given: NewRoutine) -> uuid.UUID | None:
    """The conversation that gets the results, locked; None for the primary one. NotFound for another agent's."""
    if given.session_id is None:
        return None
    session = lock_session(find_target(given.session_id))
    if session.agent_id != given.agent_id:
        raise NotFound("there is no such session")
    return None if session.type == SessionType.PRIMARY else session.pk


def _refuse_duplicate(agent_id: int, title: str, schedule: Schedule, now: datetime) -> None:
    wanted = normalised(title)
    for job in agent_routines(agent_id).filter(enabled=True, clock__next_run_at__isnull=False):
        if normalised(job.name) == wanted and same_schedule(job, schedule, now):
            raise DuplicateRoutine(f"the routine {job.pk} has the same title and schedule", routine_id=job.pk)
