"""The models of automations. Each state has its transitions listed beside it and is enforced by a CHECK."""

from automations.models.health import JobHealth, JobPreflight, ToldCause
from automations.models.job import (
    CatchUp,
    CronJob,
    ExecutionMode,
    JobClock,
    JobKind,
    Overlap,
    RemovedRoutine,
    ScheduleKind,
    Source,
    ZoneData,
    new_job_id,
)
from automations.models.run import RUN_ARROWS, Attention, RunRecord, RunState
from automations.models.scheduled_message import MESSAGE_ARROWS, MessageStatus, ScheduledMessage

__all__ = [
    "MESSAGE_ARROWS",
    "RUN_ARROWS",
    "Attention",
    "CatchUp",
    "CronJob",
    "ExecutionMode",
    "JobClock",
    "JobHealth",
    "JobKind",
    "JobPreflight",
    "MessageStatus",
    "Overlap",
    "RemovedRoutine",
    "RunRecord",
    "RunState",
    "ScheduleKind",
    "ScheduledMessage",
    "Source",
    "ToldCause",
    "ZoneData",
    "new_job_id",
]
