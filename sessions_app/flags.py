"""Feature flags (rule 10.1). Operators use them to switch off a feature that causes trouble.

RONDO_FLAGS sets them, with the same value in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings


@dataclass(frozen=True, kw_only=True)
class FeatureFlag:
    """One flag: its name, the Django setting that holds it, and its default value."""

    name: str
    setting: str
    default: Any

    @property
    def value(self) -> Any:
        """The value in this process."""
        return getattr(settings, self.setting)

    def in_words(self, value: Any) -> str:
        """Describe a value: `heartbeat.broadcast_scope is session`, `scheduler.cron_jobs is off`."""
        if not isinstance(value, str):
            value = "on" if value else "off"
        return f"{self.name} is {value}"


BROADCAST_SCOPE = FeatureFlag(
    name="heartbeat.broadcast_scope", setting="RONDO_HEARTBEAT_BROADCAST_SCOPE", default="agent"
)
STATUS_HINT = FeatureFlag(
    name="heartbeat.realtime_status_hint", setting="RONDO_HEARTBEAT_REALTIME_STATUS_HINT", default=True
)
REFLECTION = FeatureFlag(
    name="heartbeat.routine_reflection", setting="RONDO_HEARTBEAT_ROUTINE_REFLECTION", default=True
)
CRON_JOBS = FeatureFlag(name="scheduler.cron_jobs", setting="RONDO_SCHEDULER_CRON_JOBS", default=True)
FETCH_URL = FeatureFlag(name="tools.fetch_url", setting="RONDO_FETCH_URL", default=True)
MCP = FeatureFlag(name="tools.mcp", setting="RONDO_MCP", default=True)
PREFLIGHT = FeatureFlag(name="automations.preflight", setting="RONDO_PREFLIGHT", default=True)
ALL = (PREFLIGHT, BROADCAST_SCOPE, STATUS_HINT, REFLECTION, CRON_JOBS, FETCH_URL, MCP)


def tells_every_window() -> bool:
    """Whether background turns are reported to every window of the agent; else only to their session's windows."""
    return bool(BROADCAST_SCOPE.value == "agent")


def hints_at_mail() -> bool:
    """Whether open windows show at once that a mailbox update waits; else people see it with their next turn."""
    return bool(STATUS_HINT.value)


def reflects() -> bool:
    """Whether a heartbeat without due tasks looks for missing routines and registers them."""
    return bool(REFLECTION.value)


def runs_jobs_apart() -> bool:
    """Whether isolated routines run in sessions of their own; else the heartbeat runs them."""
    return bool(CRON_JOBS.value)


def flag_values() -> dict[str, Any]:
    """Return the value of each flag in this process, by name."""
    return {flag.name: flag.value for flag in ALL}


def changed_flags() -> list[str]:
    """Describe the flags whose value in this process is not the default."""
    return [flag.in_words(flag.value) for flag in ALL if flag.value != flag.default]
