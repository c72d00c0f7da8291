"""Facts about a job that are read from its row: category, schedule, snapshot."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from automations.models import CronJob, ExecutionMode, JobKind, ScheduleKind
from automations.schedule import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    Schedule,
    ScheduleError,
    schedule_json,
)
from sessions_app.models import Agent

RESERVED_IDS = frozenset({"dream", "heartbeat"})


class Category(StrEnum):
    """How a job is run."""

    SYSTEM = "system"
    BOUND = "bound"
    ROUTINE = "routine"
    LEGACY = "legacy"


def category(job: CronJob) -> Category:
    """System by kind or reserved id, never by name; routine by its mode; bound with a session; else legacy."""
    if job.kind == JobKind.SYSTEM_EVENT or job.pk in RESERVED_IDS:
        return Category.SYSTEM
    if job.execution_mode != ExecutionMode.SESSION:
        return Category.ROUTINE
    legacy = job.channel or job.to or job.deliver is not None or job.channel_meta is not None
    if job.session_id is not None and not legacy:
        return Category.BOUND
    return Category.LEGACY


def internal_key(job: CronJob) -> str:
    """The key of the session in which a legacy or system job runs; an agent's heartbeat has one name for people."""
    return heartbeat_key(job.agent) if job.system_event == "heartbeat" else f"cron:{job.pk}"


def heartbeat_key(agent: Agent) -> str:
    """The key of an agent's heartbeat session."""
    return f"heartbeat:{agent.name}"


def schedule_of(job: CronJob) -> Schedule:
    """The job's schedule. ScheduleError when the row holds none that can be read."""
    if job.schedule_kind == ScheduleKind.CRON:
        return CronSchedule(expr=job.expr, timezone=job.timezone)
    if job.schedule_kind == ScheduleKind.EVERY and job.every_seconds and job.anchor:
        return EverySchedule(seconds=job.every_seconds, anchor=job.anchor)
    if job.schedule_kind == ScheduleKind.AT and job.at:
        return AtSchedule(at=job.at)
    raise ScheduleError("bad_schedule", f"the job has no readable schedule of kind {job.schedule_kind!r}")


def schedule_columns(schedule: Schedule) -> dict[str, Any]:
    """The columns of a job that hold this schedule."""
    columns: dict[str, Any] = {
        "schedule_kind": schedule.kind,
        "expr": "",
        "every_seconds": None,
        "anchor": None,
        "at": None,
    }
    if isinstance(schedule, CronSchedule):
        return columns | {"expr": schedule.expr, "timezone": schedule.timezone}
    if isinstance(schedule, EverySchedule):
        return columns | {"every_seconds": schedule.seconds, "anchor": schedule.anchor}
    return columns | {"at": schedule.at}


def snapshot(job: CronJob) -> dict[str, Any]:
    """What a run keeps of the job it ran, so that a later edit does not rewrite the past."""
    return {
        "name": job.name,
        "message": job.message,
        "timezone": job.timezone,
        "schedule": schedule_json(schedule_of(job), zone=job.timezone),
        "revision": job.revision,
        "max_retry": job.max_retry,
        "policy": job.policy
        | ({} if job.timeout_seconds is None else {"timeout_seconds": job.timeout_seconds}),
    }
