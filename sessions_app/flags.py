"""Feature flags (rule 10.1). Operators use them to switch off a feature that causes trouble.

Each is an environment variable with the same value in every process, and is read in this module only.
"""

from __future__ import annotations

from collections.abc import Mapping
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
ALL = (BROADCAST_SCOPE, STATUS_HINT, REFLECTION, CRON_JOBS)


def tells_every_window() -> bool:
    """Whether background turns are reported to every window of the agent; else only to their session's windows."""
    return bool(BROADCAST_SCOPE.value == "agent")


def hints_at_mail() -> bool:
    """Whether windows are told at once that a mailbox update waits; else people see it with their next turn."""
    return bool(STATUS_HINT.value)


def reflects() -> bool:
    """Whether a heartbeat without due tasks looks for missing routines and registers them."""
    return bool(REFLECTION.value)


def runs_jobs_apart() -> bool:
    """Whether isolated routines run in sessions of their own; else the heartbeat runs them."""
    return bool(CRON_JOBS.value)


def flag_values(told: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Return the value of each flag by name: as another process has `told` it by its setting, or of this process."""
    return {
        flag.name: flag.value if text is None else text if isinstance(flag.default, str) else text == "1"
        for flag in ALL
        for text in [(told or {}).get(flag.setting)]
    }


def changed_flags(values: Mapping[str, Any] | None = None) -> list[str]:
    """Describe the flags whose value is not the default; without `values`, of this process."""
    values = values or flag_values()
    return [flag.in_words(values[flag.name]) for flag in ALL if values[flag.name] != flag.default]
