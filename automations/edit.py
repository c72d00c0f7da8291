"""Making, changing and removing automations. Clock first, then job: the order beat locks in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from automations import gaps
from automations.checks import checked
from automations.due import plans_changed
from automations.exceptions import BadJob, JobNotFound, ProtectedJob, TooManyJobs
from automations.jobs import Category, category, schedule_columns, schedule_of
from automations.models import CatchUp, CronJob, JobClock, Overlap, RunRecord, RunState, Source
from automations.schedule import (
    EverySchedule,
    Schedule,
    ScheduleError,
    count_slots,
    last_slot_until,
    next_slot,
    parse_schedule,
)
from automations.slots import Gap, GapReason
from sessions_app.cancel import cancel_waiting
from sessions_app.exceptions import NotFound, RevisionConflict, SessionClosed
from sessions_app.models import Session, SessionState, Turn
from sessions_app.models.turn import OPEN_STATES

MOST_ENABLED = 50  # automations of one session
NAME_FROM_MESSAGE = 30  # characters
EDITABLE = frozenset({"name", "message", "schedule", "enabled", "overlap", "catch_up", "timeout_seconds"})


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A bound automation to make; `schedule` as the API spells it. An empty name is taken from the message."""

    session_id: uuid.UUID
    message: str
    schedule: Mapping[str, Any]
    name: str = ""
    enabled: bool = True
    overlap: str = Overlap.SKIP
    catch_up: str = CatchUp.ONE
    timeout_seconds: int | None = None
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
        }
    )
    try:
        with transaction.atomic():
            session = _locked_session(given.session_id)
            now = _database_now()
            schedule = read_schedule(given.schedule, session.agent.timezone, now)
            if given.enabled:
                _check_limit(session)
            job = CronJob(
                agent=session.agent,
                session=session,
                source=given.source,
                created_by_turn_id=given.turn_id,
                **({"timezone": session.agent.timezone} | schedule_columns(schedule)),
                **values,
            )
            job.save(force_insert=True)
            next_run_at = next_slot(schedule, now) if given.enabled else None
            job.clock = JobClock.objects.create(job=job, next_run_at=next_run_at)
            transaction.on_commit(plans_changed, robust=True)
    except IntegrityError as error:
        raise NotFound("there is no such session") from error
    return job


def update_job(job_id: str, changes: Mapping[str, Any], *, revision: int | None = None) -> CronJob:
    """Change named fields only; a running or queued run keeps what it was made from.

    BadJob, JobNotFound, ProtectedJob, TooManyJobs; RevisionConflict when `revision` is not the job's.
    """
    unknown = sorted(set(changes) - EDITABLE)
    if unknown:
        raise BadJob(f"{unknown[0]!r} cannot be changed", code="not_editable")
    plain = checked({name: value for name, value in changes.items() if name != "schedule"})
    with transaction.atomic():
        clock, job = _locked_job(job_id, revision)
        if not changes:
            job.clock = clock
            return job
        now = _database_now()
        planned = {}
        if "schedule" in changes:
            planned = {"timezone": job.agent.timezone} | schedule_columns(
                _changed_schedule(job, changes["schedule"], now)
            )
        switched = plain.get("enabled", job.enabled) != job.enabled
        if planned or switched:
            _account_overdue(clock, job, now)
        if switched:
            _switch(job)
        _save(job, plain | planned)
        if planned or switched:
            _rewind(clock, job, now)
        transaction.on_commit(plans_changed, robust=True)
    job.clock = clock
    return job


def _switch(job: CronJob) -> None:
    """Before `enabled` changes: resuming counts against the limit, pausing cancels what waits."""
    if job.enabled:
        _cancel_queued_runs(job, "paused")
    else:
        _check_limit(_locked_session(job.session_id), besides=job.pk)
        job.fault = ""


def _save(job: CronJob, columns: Mapping[str, Any]) -> None:
    for name, value in columns.items():
        setattr(job, name, value)
    job.revision += 1
    job.save(update_fields=[*columns, "fault", "revision", "updated_at"])


def delete_job(job_id: str, *, revision: int | None = None) -> None:
    """Remove an automation with its runs; a turn of it that runs goes on. JobNotFound, ProtectedJob."""
    with transaction.atomic():
        _clock, job = _locked_job(job_id, revision)
        _cancel_queued_runs(job, "deleted")
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


def _database_now() -> datetime:
    """The clock that firing goes by. Read after the locks, so that nothing fired in between lies ahead of it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    return row[0]  # type: ignore[no-any-return]


def default_name(message: str) -> str:
    """The first 30 characters of the message, on one line."""
    printable = "".join(letter if letter.isprintable() else " " for letter in message)
    return " ".join(printable.split())[:NAME_FROM_MESSAGE].strip()


def _changed_schedule(job: CronJob, data: Any, now: datetime) -> Schedule:
    schedule = read_schedule(data, job.agent.timezone, now)
    if isinstance(schedule, EverySchedule) and schedule.seconds == job.every_seconds and job.anchor:
        return schedule_of(job)  # the same interval keeps its grid
    return schedule


def _locked_job(job_id: str, revision: int | None) -> tuple[JobClock, CronJob]:
    clock = JobClock.objects.select_for_update(no_key=True).filter(job_id=job_id).first()
    job = (
        CronJob.objects.select_for_update(no_key=True, of=("self",))
        .select_related("agent")
        .filter(pk=job_id)
        .first()
    )
    if clock is None or job is None:
        raise JobNotFound
    if category(job) is Category.SYSTEM:
        raise ProtectedJob
    if revision is not None and revision != job.revision:
        raise RevisionConflict
    return clock, job


def _locked_session(session_id: uuid.UUID | None) -> Session:
    session = (
        Session.objects.select_for_update(no_key=True, of=("self",))
        .select_related("agent")
        .filter(pk=session_id or uuid.UUID(int=0))
        .first()
    )
    if session is None:
        raise NotFound("there is no such session")
    if session.state != SessionState.OPEN:
        raise SessionClosed(f"the session is {session.state}")
    return session


def _check_limit(session: Session, besides: str = "") -> None:
    # the session row is locked, so two cannot both be the fiftieth
    # a one-shot that is done does not count: it has no slot left
    planned = CronJob.objects.filter(session=session, enabled=True, clock__next_run_at__isnull=False)
    if planned.exclude(pk=besides).count() >= MOST_ENABLED:
        raise TooManyJobs(f"a session may have {MOST_ENABLED} enabled automations")


def _account_overdue(clock: JobClock, job: CronJob, now: datetime) -> None:
    """Slots that are due but were not fired yet end with the old plan; one skipped run says so."""
    first = clock.next_run_at
    if first is None or first > now:
        return
    schedule = schedule_of(job)
    last = last_slot_until(schedule, first, now) or first
    others = count_slots(schedule, first, last)
    gaps.skip(
        job,
        Gap(
            reason=GapReason.EDITED,
            slots_from=first,
            slots_to=last,
            count=None if others is None else others + 1,
        ),
    )
    clock.last_slot = max(last, clock.last_slot or last)
    clock.save(update_fields=["last_slot"])


def _rewind(clock: JobClock, job: CronJob, now: datetime) -> None:
    """The next slot from now on: paused time is never caught up, and no accounted slot comes again."""
    after = max(now, clock.last_slot) if clock.last_slot else now
    clock.next_run_at = next_slot(schedule_of(job), after) if job.enabled else None
    clock.save(update_fields=["next_run_at"])


def _cancel_queued_runs(job: CronJob, reason: str) -> None:
    """What waits is not run any more; what runs goes on."""
    for run in RunRecord.objects.filter(job=job, state=RunState.QUEUED):
        if run.turn_id is not None and cancel_waiting(run.turn_id, reason):
            continue
        waits = run.turn_id and Turn.objects.filter(pk=run.turn_id, state__in=OPEN_STATES).exists()
        if not waits:  # the turn is gone, or ended without its run
            RunRecord.objects.filter(pk=run.pk, state=RunState.QUEUED).update(
                state=RunState.CANCELLED, reason=reason, finished_at=Now()
            )
