"""The feature flags (rule 10.1): what may be switched off when it goes wrong, and what happens then instead.

Each is an environment variable, the same in every process, and is read here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag by its name, the setting that holds it, and its value while nobody changes it."""

    name: str
    setting: str
    default: Any

    @property
    def value(self) -> Any:
        """As this process has it."""
        return getattr(settings, self.setting)

    def in_words(self) -> str:
        """`heartbeat.broadcast_scope is session`, `scheduler.cron_jobs is off`."""
        return (
            f"{self.name} is {self.value if isinstance(self.value, str) else 'on' if self.value else 'off'}"
        )


BROADCAST_SCOPE = Flag(
    name="heartbeat.broadcast_scope", setting="RONDO_HEARTBEAT_BROADCAST_SCOPE", default="agent"
)
STATUS_HINT = Flag(
    name="heartbeat.realtime_status_hint", setting="RONDO_HEARTBEAT_REALTIME_STATUS_HINT", default=True
)
REFLECTION = Flag(
    name="heartbeat.routine_reflection", setting="RONDO_HEARTBEAT_ROUTINE_REFLECTION", default=True
)
CRON_JOBS = Flag(name="scheduler.cron_jobs", setting="RONDO_SCHEDULER_CRON_JOBS", default=True)
ALL = (BROADCAST_SCOPE, STATUS_HINT, REFLECTION, CRON_JOBS)


def tells_every_window() -> bool:
    """Whether what runs in the background is told to every window of its agent, or to its session's alone."""
    return bool(BROADCAST_SCOPE.value == "agent")


def hints_at_mail() -> bool:
    """Whether windows are told at once that an update waits; else people see it with their next turn."""
    return bool(STATUS_HINT.value)


def reflects() -> bool:
    """Whether a heartbeat with nothing to do looks for missing routines and registers them."""
    return bool(REFLECTION.value)


def runs_jobs_apart() -> bool:
    """Whether isolated routines run in sessions of their own; else the heartbeat does them."""
    return bool(CRON_JOBS.value)


def values() -> Mapping[str, Any]:
    """All of them by name."""
    return {flag.name: flag.value for flag in ALL}


def changed() -> list[str]:
    """Those that are not as they are by default, in words."""
    return [flag.in_words() for flag in ALL if flag.value != flag.default]
