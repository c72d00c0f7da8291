"""Create, change and delete automations. Lock order, as in beat: clock, then job."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from automations.exceptions import (
    BadJob,
    DuplicateJob,
    JobNotFound,
    ProtectedJob,
    ScheduleError,
    TooManyJobs,
)
from automations.jobs.clock import (
    database_now,
    notify_beats,
    replan,
    restart_clock,
    skip_overdue_slots,
    start_clock,
)
from automations.jobs.removed_routines import normalised, remember_removed_titles
from automations.jobs.validate import CHOICES, check_quota, checked_choices, count_texts, validated
from automations.models import (
    CatchUp,
    CronJob,
    JobClock,
    JobHealth,
    JobPreflight,
    Overlap,
    RunRecord,
    Source,
    new_job_id,
)
from automations.models.job import RESERVED_IDS, Category, Pause, category
from automations.runs.record import cancel_queued_runs
from automations.schedules.plan import (
    plan_of,
    same_schedule,
    schedule_columns,
    schedule_of,
)
from automations.schedules.schedule import EverySchedule, Schedule, parse_schedule, read_time
from sessions_app import flags, hints
from sessions_app.exceptions import NotFound, RevisionConflict
from sessions_app.models import Agent, Connection, Session, SessionType
from sessions_app.questions import unattended
from sessions_app.queue.threads import find_target, must_be_open
from sessions_app.spending.accounts import forget_stopped, tell_anew
from sessions_app.spending.caps import merge_caps

_KEPT_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
CONVERSATIONS = frozenset({SessionType.PRIMARY, SessionType.SUB})
PREFLIGHT = "preflight"  # the chore of maintenance of `automations/preflight.py`
MOST_ENABLED = 50  # automations of one session
NAME_FROM_MESSAGE = 30  # characters
PLAN = frozenset({"schedule", "ends_at", "max_runs", "jitter_seconds"})  # fields that change the slots
# columns that decide whether a job's call fits into a cap
OF_CALLS = frozenset(
    {
        *("limits", "model", "fallback_model", "max_output_tokens", "allow_tools", "message", "description"),
        *("execution_mode", "enabled"),
    }
)
EDITABLE = PLAN | {
    *("paused_from", "paused_until", "name", "message", "enabled", "overlap"),
    *("catch_up", "timeout_seconds", "max_retry", "ping_url", "limits", *CHOICES),
}
PAUSE = frozenset({"paused_from", "paused_until"})
_OF_AGENT = frozenset({"schedule", "ends_at", *PAUSE, *CHOICES})  # read with the agent
_SETTINGS = (
    "enabled", "overlap", "catch_up", "timeout_seconds", "max_runs", "jitter_seconds", "max_retry", "ping_url",
    "limits",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A bound automation to create; `schedule` is the API's JSON. An empty name is taken from the message.

    `ends_at`: no runs after this ISO time; without an offset it is in the agent's zone. `max_runs`: limit of runs.
    `jitter_seconds` is the longest delay of a run; the job's id decides it, the same for all runs. `max_retry`: retries
    of a failed run. `model` and the four fields below it: see `validate.py`. `allow_duplicate`: create
    the automation even if the session has one with the same message and schedule. People and models may not.
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
    ping_url: str = ""
    model: str = ""
    fallback_model: str = ""
    max_output_tokens: int | None = None
    allow_tools: list[str] | None = None
    gate: Mapping[str, Any] | None = None
    allow_duplicate: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)
    source: str = Source.MANUAL
    turn_id: int | None = None


def create_job(given: NewJob, *, is_limited: bool = False) -> CronJob:
    """Create a bound automation. `is_limited`: see `checked_choices`. BadJob, DuplicateJob, TooManyJobs, NotFound,
    SessionClosed.
    """
    texts = {"message": given.message, "name": given.name or default_name(given.message)}
    values = validated(texts | {name: getattr(given, name) for name in _SETTINGS})
    values["limits"] = merge_caps({}, given.limits)
    try:
        with transaction.atomic():
            session = lock_session(given.session_id)
            now = database_now()
            schedule = parse_api_schedule(given.schedule, session.agent.timezone, now)
            values |= checked_choices(
                session.agent, {name: getattr(given, name) for name in CHOICES}, is_limited=is_limited
            )
            if given.enabled:
                check_limit(session)
            if given.enabled and not given.allow_duplicate:
                _refuse_duplicate(session, given.message, schedule, now)
            job = CronJob(
                agent=session.agent,
                session=session,
                source=given.source,
                created_by_turn_id=given.turn_id,
                ends_at=future_time(given.ends_at, session.agent.timezone, now),
                **schedule_columns(schedule, session.agent.timezone),
                **values,
            )
            _check_end(job, 0, now)
            if given.enabled:
                check_quota(job, TooManyJobs)
            job.save(force_insert=True)
            count_texts(job)
            start_clock(job, now)
            _request_preflight(job)
            transaction.on_commit(notify_beats, robust=True)
    except IntegrityError as error:
        raise NotFound("there is no such session") from error
    return job


def bind_job(given: NewJob, *, is_limited: bool = False) -> CronJob:
    """Create a person's automation: in a thread of a unified agent it is bound to the primary session."""
    with transaction.atomic():
        return create_job(replace(given, session_id=find_target(given.session_id)), is_limited=is_limited)


def update_job(
    job_id: str,
    changes: Mapping[str, Any],
    *,
    revision: int | None = None,
    by_operator: bool = False,
    is_limited: bool = False,
) -> CronJob:
    """Change the given fields only; running and queued runs keep the old values.

    `by_operator`: allows pausing and resuming a system job. `is_limited`: see `checked_choices`. BadJob, JobNotFound,
    ProtectedJob, TooManyJobs; RevisionConflict when `revision` is not the job's.
    """
    unknown = sorted(set(changes) - EDITABLE)
    if unknown:
        raise BadJob(f"{unknown[0]!r} cannot be changed", code="not_editable")
    plain = validated({name: value for name, value in changes.items() if name not in _OF_AGENT})
    with transaction.atomic():
        clock, job = lock_job(job_id, revision)
        if category(job) is Category.SYSTEM and not (by_operator and changes.keys() <= {"enabled"}):
            raise ProtectedJob
        if changes:
            plain |= checked_choices(job.agent, changes, job, is_limited=is_limited)
            before = {name: getattr(job, name) for name in OF_CALLS}
            _change(clock, job, plain, changes)
            _request_preflight(job)
            look_at_caps_again(job, {name for name in OF_CALLS if getattr(job, name) != before[name]})
            transaction.on_commit(notify_beats, robust=True)
    job.clock = clock
    return job


def _change(clock: JobClock, job: CronJob, plain: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Write the changed columns, and move the clock when the slots changed. `plain`: the columns without times."""
    now = database_now()
    columns = plain | _plan_columns(job, changes, now)
    if "limits" in columns:
        columns["limits"] = merge_caps(job.limits, columns["limits"])
    before, pause = clock.pause, changed_pause(clock, job, changes, now)
    replanned = bool(PLAN & changes.keys())
    begins = write_changes(clock, job, columns, now, replanned=replanned, pause=pause)
    if {"schedule", "ends_at"} & changes.keys():
        _check_end(job, clock.runs_started, now)
    if begins and job.session_id is not None:
        check_limit(lock_session(job.session_id), besides=job.pk)
    if clock.next_run_at is not None and (begins or "schedule" in changes):
        check_quota(job, TooManyJobs)
    if job.enabled:
        JobHealth.objects.begin_afresh(job.pk, now)
    check_pause(clock, before)


def check_pause(clock: JobClock, before: Pause | None) -> None:
    """BadJob when a new pause leaves no run. `before`: the pause that the job had."""
    if clock.pause not in (None, before) and clock.next_run_at is None:
        raise BadJob("no run is left after paused_until", code="never_fires")


def write_changes(
    clock: JobClock,
    job: CronJob,
    columns: Mapping[str, Any],
    now: datetime,
    *,
    replanned: bool,
    pause: Pause | None = None,
) -> bool:
    """Write changed columns, and move the clock when the plan, `enabled` or the pause has changed.

    A pause that begins now cancels queued runs; those that never began do not count as run. Returns whether the job had
    no slot left before and has one now: then the caller checks the limits of enabled jobs. BadJob.
    """
    held, begins = pause != clock.pause, pause is not None and pause.begin is None
    switched = columns.get("enabled", job.enabled) != job.enabled
    moves = replanned or switched or (held and (begins or clock.pause_at(now) is not None))
    if moves:
        skip_overdue_slots(clock, job, now)
    if job.enabled if switched else held and begins:
        clock.runs_started = max(0, clock.runs_started - cancel_queued_runs(job, "paused"))
        clock.save(update_fields=["runs_started"])
    if switched:
        job.fault = ""
    clock.paused_from, clock.paused_until = pause or (None, None)
    save_columns(job, columns)
    if switched and job.enabled:
        JobHealth.objects.restart(job.pk, now)
    if moves:
        return _move_clock(clock, job, now)
    return held and replan(clock, job, now)


def _move_clock(clock: JobClock, job: CronJob, now: datetime) -> bool:
    """Set the next slot after now. Returns whether the job had none before and has one now.

    BadJob when a one-time job that never ran is resumed after its time, or its new time was skipped or lies in a pause:
    it would silently never run.
    """
    idle, never_came = clock.next_run_at is None, clock.last_slot is None
    restart_clock(clock, job, now)
    if job.enabled and never_came and job.at is not None and clock.next_run_at is None and job.at > now:
        raise BadJob(f"its time {job.at.isoformat()} was skipped or lies in a pause", code="never_fires")
    if job.enabled and never_came and job.at is not None and job.at <= now:
        raise BadJob(f"its time {job.at.isoformat()} has passed; give it a new time", code="past_at")
    return idle and clock.next_run_at is not None


def save_columns(job: CronJob, columns: Mapping[str, Any]) -> None:
    """Save these columns only, with the next revision."""
    for name, value in columns.items():
        setattr(job, name, value)
    job.revision += 1
    job.save(update_fields=[*columns, "fault", "revision", "updated_at"])
    if not columns.keys().isdisjoint({"message", "description"}):
        count_texts(job)


def insert_job(job: CronJob, wanted_id: str) -> None:
    """Insert the job with the wanted id if that is well-formed, not reserved and free; else with a new one."""
    well_formed = _KEPT_ID.fullmatch(wanted_id) and wanted_id not in RESERVED_IDS
    if well_formed and not CronJob.objects.filter(pk=wanted_id).exists():
        job.pk = wanted_id
        try:
            with transaction.atomic():
                job.save(force_insert=True)
            return
        except IntegrityError:  # another job took the id meanwhile
            job.pk = new_job_id()
    job.save(force_insert=True)


def delete_job(job_id: str, *, revision: int | None = None) -> None:
    """Delete an automation with its runs; a running turn of it goes on. JobNotFound, ProtectedJob."""
    with transaction.atomic():
        _clock, job = lock_job(job_id, revision)
        if category(job) is Category.SYSTEM:
            raise ProtectedJob
        cancel_queued_runs(job, "deleted")
        remember_removed_titles([job])
        for name in ("job_id", "routine_id"):  # of the tools
            unattended.object_is_gone(job.agent.owner_id, **{name: job.pk})
        RunRecord.objects.filter(job=job).delete()
        JobClock.objects.filter(job=job).delete()
        CronJob.objects.filter(pk=job.pk).delete()
        transaction.on_commit(notify_beats, robust=True)


def parse_api_schedule(data: Any, timezone: str, now: datetime) -> Schedule:
    """Parse the API's JSON of a schedule. BadJob with the schedule error's code."""
    try:
        return parse_schedule(data, default_timezone=timezone, now=now)
    except ScheduleError as error:
        raise BadJob(str(error), code=error.code) from error


def future_time(text: Any, timezone: str, now: datetime, name: str = "ends_at") -> datetime | None:
    """A future ISO time of this field; None stays None. BadJob `bad_<name>`."""
    if text is None:
        return None
    try:
        return read_time(text, timezone, now, name=name)[0]
    except ScheduleError as error:
        raise BadJob(str(error), code=f"bad_{name}") from error


def changed_pause(clock: JobClock, job: CronJob, changes: Mapping[str, Any], now: datetime) -> Pause | None:
    """The new pause: `enabled` clears it unless it is given. BadJob when the job is disabled anyway."""
    if changes.keys().isdisjoint(PAUSE):
        return None if "enabled" in changes else clock.pause
    known = clock.paused_until if clock.paused_until and clock.paused_until > now else None
    zone, until = job.agent.timezone, known
    if "paused_until" in changes:
        until = future_time(changes["paused_until"], zone, now, "paused_until")
    begin = future_time(changes.get("paused_from"), zone, now, "paused_from")
    if until is None or (begin is not None and begin >= until):
        if begin is not None:
            raise BadJob("paused_from must be before the end of the pause", code="bad_paused_from")
        return None
    if not changes.get("enabled", job.enabled):
        raise BadJob(
            "the automation is paused: enable it together with paused_until", code="bad_paused_until"
        )
    return Pause(begin, until)


def _plan_columns(job: CronJob, changes: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if "schedule" in changes:
        schedule = _changed_schedule(job, changes["schedule"], now)
        columns |= schedule_columns(schedule, job.agent.timezone)
    if "ends_at" in changes:
        columns["ends_at"] = future_time(changes["ends_at"], job.agent.timezone, now)
    return columns


def _check_end(job: CronJob, runs_started: int, now: datetime) -> None:
    """BadJob when the job ends before its next slot."""
    if job.ends_at is not None and plan_of(job, runs_started).slots.next(now) is None:
        raise BadJob("ends_at is before the first run", code="never_fires")


def default_name(message: str) -> str:
    """The first 30 characters of the message, on one line."""
    printable = "".join(letter if letter.isprintable() else " " for letter in message)
    return " ".join(printable.split())[:NAME_FROM_MESSAGE].strip()


def _changed_schedule(job: CronJob, data: Any, now: datetime) -> Schedule:
    schedule = parse_api_schedule(data, job.agent.timezone, now)
    if isinstance(schedule, EverySchedule) and schedule.seconds == job.every_seconds and job.anchor:
        return schedule_of(job)  # the same interval keeps its anchor
    return schedule


def lock_job(job_id: str, revision: int | None) -> tuple[JobClock, CronJob]:
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


def lock_session(session_id: uuid.UUID) -> Session:
    """A conversation, locked, with its agent. NotFound, SessionClosed; BadJob for an internal session."""
    rows = Session.objects.select_for_update(no_key=True, of=("self",)).select_related("agent")
    session = must_be_open(rows.filter(pk=session_id).first())
    if session.type not in CONVERSATIONS:
        raise BadJob("automations belong to conversations; this session is internal", code="internal_session")
    return session


def check_limit(session: Session, besides: str = "") -> None:
    """TooManyJobs. The session is locked, so two jobs cannot both be the last. Jobs without slots left do not count."""
    planned = CronJob.objects.filter(session=session, enabled=True, clock__next_run_at__isnull=False)
    if planned.exclude(pk=besides).count() >= MOST_ENABLED:
        raise TooManyJobs(f"a session may have at most {MOST_ENABLED} enabled automations")


def _refuse_duplicate(session: Session, message: str, schedule: Schedule, now: datetime) -> None:
    """DuplicateJob. The session is locked, so two equal ones cannot both be the first."""
    wanted = normalised(message)
    for job in CronJob.objects.filter(session=session, enabled=True, clock__next_run_at__isnull=False):
        if normalised(job.message) == wanted and same_schedule(job, schedule, now):
            text = f"the automation {job.pk} {job.name!r} has the same message and schedule"
            raise DuplicateJob(f"{text}; with allow_duplicate a second one is created")


def _request_preflight(job: CronJob) -> None:
    """Have the job checked soon (rule 11.5), in the transaction that saves it."""
    if not flags.PREFLIGHT.value:
        return
    row = JobPreflight(job=job, requested=True)
    JobPreflight.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["job"], update_fields=["requested"]
    )
    _ask_for_preflight()


def _ask_for_preflight() -> None:
    transaction.on_commit(lambda: hints.ask_for_maintenance(PREFLIGHT), robust=True)


def look_at_caps_again(job: CronJob, changed: Collection[str]) -> None:
    """Let a job run that a cap had stopped, if columns were changed that decide whether its call fits."""
    if not OF_CALLS.isdisjoint(changed):
        forget_stopped(Agent.objects.filter(pk=job.agent_id), job.pk)
    if "limits" in changed:
        tell_anew("automation", job.pk)


def check_budgets_again(agents: QuerySet[Agent], automation: str) -> None:
    """Have automations of these agents that a cap will stop, or this one, checked soon: it may not any more."""
    told = JobPreflight.objects.exclude(problems=[]).filter(problems__contains=[{"code": "budget"}])
    told = told.filter(job__agent__in=agents, **({"job": automation} if automation else {}))
    if flags.PREFLIGHT.value and told.update(requested=True):
        _ask_for_preflight()


def check_models_again(connection_id: int) -> None:
    """Have automations with a problem, or that are being checked, checked soon if they may use this connection."""
    if not flags.PREFLIGHT.value:
        return
    reached = Q(owner=None) | Q(owner=OuterRef("job__agent__owner"))
    connection = Connection.objects.filter(reached, pk=connection_id)
    known = ~Q(problems=[]) | Q(checked_at__gt=Now() - timedelta(minutes=1))
    if JobPreflight.objects.filter(known, Exists(connection)).update(requested=True):
        _ask_for_preflight()
