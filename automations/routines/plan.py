"""A routine's schedule as text, and the plan of a new or changed routine (rules 6.4, 6.5).

A schedule is `30m`, `1h`, `2d`, five cron fields, or an instant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from automations.exceptions import BadJob, ScheduleError
from automations.jobs.clock import notify_beats
from automations.models import CronJob, ExecutionMode, JobClock, ScheduleKind, Source
from automations.schedules.plan import schedule_columns, schedule_of
from automations.schedules.schedule import (
    AtSchedule,
    EverySchedule,
    Schedule,
    parse_schedule,
    read_time,
    whole_milliseconds,
)
from automations.schedules.zone_files import load_zone
from sessions_app import flags

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # the `now` for reading an instant that may have passed
_INTERVAL = re.compile(r"([0-9]{1,9})([smhd])")
PLAN = frozenset({"schedule", "next_run_at", "timezone"})  # fields that change the slots
_SCHEDULE_COLUMNS = frozenset({"schedule_kind", "expr", "every_seconds", "anchor", "at"})
INLINE_TIMEOUT = 60  # seconds; a routine with a longer timeout is isolated
INLINE_DESCRIPTION = 200  # characters; a routine with a longer description is isolated


@dataclass(frozen=True, kw_only=True)
class RoutineFields:
    """The fields of a routine that people give, in tools, API, command line and HEARTBEAT.md.

    `schedule`: `30m`, `1h`, `2d` or five cron fields. `next_run_at`: ISO time of the first run, or of the only run when
    there is no schedule. With neither, the routine runs once, immediately. `timezone` empty: the agent's. No
    `execution_mode`: it is inferred.
    """

    title: str = ""
    description: str = ""
    instructions: str = ""
    schedule: str | None = None
    next_run_at: str | None = None
    timezone: str = ""
    execution_mode: str | None = None
    timeout_seconds: int | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    max_retry: int = 3  # further attempts of a failed run (rule 4.7)
    task_type: str = ""
    source: str = Source.MANUAL
    enabled: bool = True


def read_routine_schedule(text: Any, *, timezone: str, now: datetime) -> Schedule:
    """Read an interval, or five cron fields in this zone. ScheduleError."""
    if not isinstance(text, str) or not text.strip():
        raise ScheduleError(
            "bad_schedule", "A schedule is an interval such as `30m`, `1h` or `2d`, or five cron fields."
        )
    found = _INTERVAL.fullmatch(text.strip())
    if found:
        given: dict[str, Any] = {"kind": ScheduleKind.EVERY, "seconds": int(found[1]) * UNITS[found[2]]}
    elif " " not in text.strip():
        raise ScheduleError(
            "bad_schedule", f"{text[:60]!r} is neither an interval such as `30m` nor five cron fields."
        )
    else:
        given = {"kind": ScheduleKind.CRON, "expr": text.strip(), "timezone": timezone}
    return parse_schedule(given, default_timezone=timezone, now=now)


def read_first_run(text: Any, *, timezone: str, now: datetime) -> datetime:
    """Read a future ISO time; without an offset it is in this zone. ScheduleError."""
    return read_time(text, timezone, now, name="next_run_at")[0]


def with_anchor(schedule: Schedule, first: datetime | None) -> Schedule:
    """Return the schedule; an interval starts at `first`, if that is given."""
    if isinstance(schedule, EverySchedule) and first is not None:
        return EverySchedule(seconds=schedule.seconds, anchor=first)
    return schedule


def routine_schedule_text(job: CronJob) -> str | None:
    """A routine's schedule as text, in the form that is accepted as input; None for a one-time routine."""
    if job.schedule_kind == ScheduleKind.AT:
        return None
    if job.schedule_kind == ScheduleKind.CRON:
        return job.expr
    return interval_text(job.every_seconds or 0)


def interval_text(seconds: int) -> str:
    """`90m` rather than `5400s`: in the largest whole unit."""
    unit = next(unit for unit, size in reversed(UNITS.items()) if seconds % size == 0)
    return f"{seconds // UNITS[unit]}{unit}"


def moves_the_clock(job: CronJob, columns: Mapping[str, Any]) -> bool:
    """Whether these columns change the job's slots. A time zone changes those of a cron expression alone."""
    is_cron = columns.get("schedule_kind", job.schedule_kind) == ScheduleKind.CRON
    return bool(columns.keys() & _SCHEDULE_COLUMNS) or (is_cron and "timezone" in columns)


def new_plan(
    schedule_text: str | None, next_run_at: str | None, *, zone: str, now: datetime
) -> tuple[Schedule, datetime]:
    """The schedule of a new routine, and its first run. BadJob."""
    try:
        load_zone(zone)
        first = None if next_run_at is None else read_first_run(next_run_at, timezone=zone, now=now)
        if schedule_text is None:
            at = first or whole_milliseconds(now)
            return AtSchedule(at=at), at
        schedule = with_anchor(read_routine_schedule(schedule_text, timezone=zone, now=now), first)
    except ScheduleError as error:
        raise BadJob(str(error), code=error.code) from error
    first = first or schedule.next(now)
    if first is None:
        raise BadJob("the schedule has no slot left", code="never_fires")
    return schedule, first


def changed_plan(
    job: CronJob, changes: Mapping[str, Any], now: datetime
) -> tuple[dict[str, Any], datetime | None]:
    """The columns of a changed schedule or zone, and the first run when it is given. BadJob."""
    if not PLAN & changes.keys():
        return {}, None
    zone = job.agent.timezone if changes.get("timezone") == "" else changes.get("timezone", job.timezone)
    try:
        load_zone(zone)
        first = None
        if changes.get("next_run_at") is not None:
            first = read_first_run(changes["next_run_at"], timezone=zone, now=now)
        schedule = _changed_schedule(job, changes, zone, first, now)
    except ScheduleError as error:
        raise BadJob(str(error), code=error.code) from error
    if isinstance(schedule, AtSchedule):
        first = None  # the schedule has it
    return schedule_columns(schedule, zone), first


def _changed_schedule(
    job: CronJob, changes: Mapping[str, Any], zone: str, first: datetime | None, now: datetime
) -> Schedule:
    text = changes.get("schedule")
    if text is None and ("schedule" in changes or job.schedule_kind == ScheduleKind.AT):
        if first is not None:
            return AtSchedule(at=first)
        if job.schedule_kind == ScheduleKind.AT:
            return schedule_of(job)
        raise ScheduleError("bad_schedule", "A routine without a schedule needs `next_run_at`.")
    if text is None and job.schedule_kind == ScheduleKind.CRON:
        text = job.expr
    if text is None:
        return with_anchor(schedule_of(job), first)
    schedule = read_routine_schedule(text, timezone=zone, now=now)
    if isinstance(schedule, EverySchedule) and schedule.seconds == job.every_seconds and first is None:
        return schedule_of(job)  # the same interval keeps its anchor
    return with_anchor(schedule, first)


def check_mode(execution_mode: str, task_type: str, gate: object) -> None:
    """BadJob for a task that needs no model and is not inline: its own session would call a model.

    BadJob also for a gate of an inline routine, because other routines share its turn.
    """
    if gate is not None and execution_mode != ExecutionMode.ISOLATED:
        raise BadJob(
            "a gate cannot be used in a routine that runs inside the heartbeat; make it isolated",
            code="bad_gate",
        )
    if task_type and execution_mode != ExecutionMode.INLINE:
        raise BadJob(f"task_type {task_type} needs execution_mode inline", code="bad_task_type")


def inferred_mode(timeout_seconds: int | None, description: str, task_type: str = "") -> str:
    """The default mode of a routine (rule 6.4). `timeout_seconds`: None when it was not given."""
    if task_type:
        return ExecutionMode.INLINE
    if timeout_seconds is not None and timeout_seconds > INLINE_TIMEOUT:
        return ExecutionMode.ISOLATED
    return ExecutionMode.ISOLATED if len(description) > INLINE_DESCRIPTION else ExecutionMode.INLINE


def is_started_by_heartbeat(job: CronJob) -> bool:
    """Whether the heartbeat starts this routine."""
    if job.execution_mode == ExecutionMode.ISOLATED:
        return not flags.runs_jobs_apart()
    return job.execution_mode == ExecutionMode.INLINE


def apply_jobs_flag() -> int:
    """Apply `scheduler.cron_jobs`: while it is false, heartbeats start isolated routines.

    Returns the number of changed routines. A routine whose run waits for a retry stays with its heartbeat until then:
    the attempt is part of a heartbeat's turn.
    """
    inline = not flags.runs_jobs_apart()
    rows = JobClock.objects.filter(inline=not inline, job__execution_mode=ExecutionMode.ISOLATED)
    if not inline:
        rows = rows.exclude(job__runs__not_before__isnull=False)
    with transaction.atomic():
        ids = list(
            rows.order_by("pk").select_for_update(of=("self",), no_key=True).values_list("pk", flat=True)
        )
        moved = JobClock.objects.filter(pk__in=ids).update(inline=inline) if ids else 0
        if moved:
            transaction.on_commit(notify_beats, robust=True)
    return moved
