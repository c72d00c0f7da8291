"""The error of an invalid schedule."""

from __future__ import annotations

from typing import Literal

ScheduleCode = Literal[
    "bad_schedule", "bad_cron", "never_fires", "unknown_timezone", "past_at", "bad_interval", "bad_time"
]


class ScheduleError(ValueError):
    """The schedule is invalid. `code` is stable; `message` is a sentence for the person who wrote the schedule."""

    def __init__(self, code: ScheduleCode, message: str) -> None:
        super().__init__(message)
        self.code: ScheduleCode = code
        self.message = message
