"""A job's category, and the keys of internal sessions."""

from __future__ import annotations

from enum import StrEnum

from automations.models import CronJob, ExecutionMode, JobKind

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


def internal_key(job_id: str, system_event: str, agent_name: str) -> str:
    """The key of the session of a legacy or system job."""
    return heartbeat_key(agent_name) if system_event == "heartbeat" else f"cron:{job_id}"


def heartbeat_key(agent_name: str) -> str:
    """The key of an agent's heartbeat session."""
    return f"heartbeat:{agent_name}"
