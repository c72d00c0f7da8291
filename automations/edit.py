"""Making, changing and removing automations. Clock first, then job: the order beat locks in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from automations.checks import checked
from automations.clocks import account_overdue, database_now, rewind
from automations.due import plans_changed
from automations.exceptions import BadJob, JobNotFound, ProtectedJob, TooManyJobs
from automations.jobs import Category, category, schedule_columns, schedule_of
from automations.models import CatchUp, CronJob, JobClock, Overlap, RunRecord, Source
from automations.plan import plan_of
from automations.queued_runs import cancel_queued_runs
from automations.schedule import (
    EverySchedule,
    Schedule,
    ScheduleError,
    next_slot,
    parse_schedule,
    read_time,
)
from sessions_app.exceptions import NotFound, RevisionConflict
from sessions_app.models import Session, SessionType
from sessions_app.unified import enter, must_be_open

CONVERSATIONS = frozenset({SessionType.PRIMARY, SessionType.SUB})
MOST_ENABLED = 50  # automations of one session
NAME_FROM_MESSAGE = 30  # characters
PLAN = frozenset({"schedule", "ends_at", "max_runs", "jitter_seconds"})  # what moves the clock
EDITABLE = PLAN | {"name", "message", "enabled", "overlap", "catch_up", "timeout_seconds", "max_retry"}


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A bound automation to make; `schedule` as the API spells it. An empty name is taken from the message.

    `ends_at`: an ISO time, without offset in the agent's zone; no slot lies later. `max_runs`: slots that are run at
    all. `jitter_seconds`: each slot is fired up to so much later. `max_retry`: further attempts of a failed run.
    """

    session_id: uuid.UUID
    message: str
    schedule: Mapping[str, Any]
    name: str = ""
    enabled: bool = True
    overlap: str = Overlap.SKIP
    catch_up: str = CatchUp.ONE
    timeout_seconds: int | None = None
    ends_at: str | None = None
    max_runs: int | None = None
    jitter_seconds: int = 0
    max_retry: int = 0
    source: str = Source.MANUAL
    turn_id: int | None = None


def create_job(given: NewJob) -> CronJob:
    """Make a bound automation. BadJob, TooManyJobs, NotFound, SessionClosed."""
    values = checked(
        {
            "message": given.message,
            "name": given.name or default_name(given.message),
            "enabled": given.enabled,
            "overlap": given.overlap,
            "catch_up": given.catch_up,
            "timeout_seconds": given.timeout_seconds,
            "max_runs": given.max_runs,
            "jitter_seconds": given.jitter_seconds,
            "max_retry": given.max_retry,
        }
    )
    try:
        with transaction.atomic():
            session = locked_session(given.session_id)
            now = database_now()
            schedule = read_schedule(given.schedule, session.agent.timezone, now)
            if given.enabled:
                check_limit(session)
            job = CronJob(
                agent=session.agent,
                session=session,
                source=given.source,
                created_by_turn_id=given.turn_id,
                ends_at=_end(given.ends_at, session.agent.timezone, now),
                **({"timezone": session.agent.timezone} | schedule_columns(schedule)),
                **values,
            )
            first = _first_firing(job, 0, now)
            job.save(force_insert=True)
            job.clock = JobClock.objects.create(
                job=job, next_run_at=first if given.enabled else None, planned_from=now
            )
            transaction.on_commit(plans_changed, robust=True)
    except IntegrityError as error:
        raise NotFound("there is no such session") from error
    return job


def bind_job(given: NewJob) -> CronJob:
    """`create_job` as a person does it: in a thread of a unified agent it binds to the primary session."""
    with transaction.atomic():
        return create_job(replace(given, session_id=enter(given.session_id).behind))


def update_job(
    job_id: str, changes: Mapping[str, Any], *, revision: int | None = None, by_operator: bool = False
) -> CronJob:
    """Change named fields only; a running or queued run keeps what it was made from.

    `by_operator`: a system job, too, may be paused and resumed. BadJob, JobNotFound, ProtectedJob, TooManyJobs;
    RevisionConflict when `revision` is not the job's.
    """
    unknown = sorted(set(changes) - EDITABLE)
    if unknown:
        raise BadJob(f"{unknown[0]!r} cannot be changed", code="not_editable")
    plain = checked({name: value for name, value in changes.items() if name not in {"schedule", "ends_at"}})
    with transaction.atomic():
        clock, job = locked_job(job_id, revision)
        if category(job) is Category.SYSTEM and not (by_operator and changes.keys() <= {"enabled"}):
            raise ProtectedJob
        if not changes:
            job.clock = clock
            return job
        now = database_now()
        columns = plain | _plan_columns(job, changes, now)
        switched = plain.get("enabled", job.enabled) != job.enabled
        replanned = bool(PLAN & changes.keys())
        if replanned or switched:
            account_overdue(clock, job, now)
        if switched:
            switch(clock, job)
        save(job, columns)
        if {"schedule", "ends_at"} & changes.keys():
            _first_firing(job, clock.runs_started, now)
        if (replanned or switched) and replan(clock, job, now) and job.session_id is not None:
            check_limit(locked_session(job.session_id), besides=job.pk)
        transaction.on_commit(plans_changed, robust=True)
    job.clock = clock
    return job


def switch(clock: JobClock, job: CronJob) -> None:
    """Before `enabled` changes: pausing cancels what waits. What of it never began does not count as run."""
    if job.enabled:
        clock.runs_started = max(0, clock.runs_started - cancel_queued_runs(job, "paused"))
        clock.save(update_fields=["runs_started"])
    job.fault = ""


def replan(clock: JobClock, job: CronJob, now: datetime) -> bool:
    """The next slot from now on; whether the job has one again, and so counts against its limit.

    What is resumed may be done; but an instant that passed meanwhile would never come, and nobody be told: BadJob.
    """
    idle, never_came = clock.next_run_at is None, clock.last_slot is None
    rewind(clock, job, now)
    if job.enabled and never_came and job.at is not None and job.at <= now:
        raise BadJob("its time has passed: give it another", code="past_at")
    return idle and clock.next_run_at is not None


def save(job: CronJob, columns: Mapping[str, Any]) -> None:
    """Named columns only, and the next revision."""
    for name, value in columns.items():
        setattr(job, name, value)
    job.revision += 1
    job.save(update_fields=[*columns, "fault", "revision", "updated_at"])


def delete_job(job_id: str, *, revision: int | None = None) -> None:
    """Remove an automation with its runs; a turn of it that runs goes on. JobNotFound, ProtectedJob."""
    with transaction.atomic():
        _clock, job = locked_job(job_id, revision)
        if category(job) is Category.SYSTEM:
            raise ProtectedJob
        cancel_queued_runs(job, "deleted")
        RunRecord.objects.filter(job=job).delete()
        JobClock.objects.filter(job=job).delete()
        CronJob.objects.filter(pk=job.pk).delete()
        transaction.on_commit(plans_changed, robust=True)


def read_schedule(data: Any, timezone: str, now: datetime) -> Schedule:
    """A schedule from the API's words; BadJob with the schedule's own code."""
    try:
        return parse_schedule(data, default_timezone=timezone, now=now)
    except ScheduleError as error:
        raise BadJob(str(error), code=error.code) from error


def _end(text: Any, timezone: str, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        return read_time(text, timezone, now, name="ends_at")[0]
    except ScheduleError as error:
        raise BadJob(str(error), code="bad_ends_at") from error


def _plan_columns(job: CronJob, changes: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if "schedule" in changes:
        schedule = _changed_schedule(job, changes["schedule"], now)
        columns |= {"timezone": job.agent.timezone} | schedule_columns(schedule)
    if "ends_at" in changes:
        columns["ends_at"] = _end(changes["ends_at"], job.agent.timezone, now)
    return columns


def _first_firing(job: CronJob, runs_started: int, now: datetime) -> datetime | None:
    """When the job is fired next. BadJob when it would end before that; a bound that is used up only ends it."""
    plan = plan_of(job, runs_started)
    if job.ends_at is not None and next_slot(plan.slots, now) is None:
        raise BadJob("the automation ends before its first slot", code="never_fires")
    return plan.next_firing(now)


def default_name(message: str) -> str:
    """The first 30 characters of the message, on one line."""
    printable = "".join(letter if letter.isprintable() else " " for letter in message)
    return " ".join(printable.split())[:NAME_FROM_MESSAGE].strip()


def _changed_schedule(job: CronJob, data: Any, now: datetime) -> Schedule:
    schedule = read_schedule(data, job.agent.timezone, now)
    if isinstance(schedule, EverySchedule) and schedule.seconds == job.every_seconds and job.anchor:
        return schedule_of(job)  # the same interval keeps its grid
    return schedule


def locked_job(job_id: str, revision: int | None) -> tuple[JobClock, CronJob]:
    """A job with its agent, and its clock, both locked. JobNotFound, RevisionConflict."""
    clock = JobClock.objects.select_for_update(no_key=True).filter(job_id=job_id).first()
    job = (
        CronJob.objects.select_for_update(no_key=True, of=("self",))
        .select_related("agent")
        .filter(pk=job_id)
        .first()
    )
    if clock is None or job is None:
        raise JobNotFound
    if revision is not None and revision != job.revision:
        raise RevisionConflict
    return clock, job


def locked_session(session_id: uuid.UUID) -> Session:
    """A conversation, locked, with its agent. NotFound, SessionClosed; BadJob for a session of the server's own."""
    rows = Session.objects.select_for_update(no_key=True, of=("self",)).select_related("agent")
    session = must_be_open(rows.filter(pk=session_id).first())
    if session.type not in CONVERSATIONS:
        raise BadJob("automations belong to conversations; this session is internal", code="internal_session")
    return session


def check_limit(session: Session, besides: str = "") -> None:
    # the session row is locked, so two cannot both be the fiftieth
    # a one-shot that is done does not count: it has no slot left
    planned = CronJob.objects.filter(session=session, enabled=True, clock__next_run_at__isnull=False)
    if planned.exclude(pk=besides).count() >= MOST_ENABLED:
        raise TooManyJobs(f"a session may have {MOST_ENABLED} enabled automations")
