"""A schedule in words, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The next slots in the schedule's zone (aware, with its offset), the schedule in words, zone-change warnings."""

    next: tuple[datetime, ...]
    words: str
    warnings: tuple[str, ...]


def describe(schedule: Schedule, *, zone: str = "UTC") -> str:
    """The schedule in words. Cron speaks in its own zone, `at` in `zone` (the agent's)."""
    raise NotImplementedError


def warnings(schedule: Schedule, *, after: datetime, count: int) -> list[str]:
    """Sentences about those of the next `count` slots that a change of the clocks moves or doubles."""
    raise NotImplementedError


def preview(schedule: Schedule, after: datetime, count: int = 5, *, zone: str = "UTC") -> Preview:
    """The next `count` slots after `after`. Cron shows its own zone, `every` and `at` show `zone` (the agent's)."""
    raise NotImplementedError
