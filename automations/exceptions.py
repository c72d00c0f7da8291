"""The exceptions of automations. Each `code` is stable and public."""

from __future__ import annotations

from typing import Literal

from sessions_app.exceptions import SessionsError


class AutomationsError(SessionsError):
    """The automation was refused."""


class _WithCode(AutomationsError):
    """An error that is raised with a code of its own."""

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code or self.code


class BadJob(_WithCode):
    """The automation is not valid."""

    code = "bad_automation"


class JobNotFound(AutomationsError):
    """There is no such automation."""

    code = "not_found"


class TooManyJobs(AutomationsError):
    """The session has its maximum of enabled automations."""

    code = "too_many_automations"


class DuplicateJob(AutomationsError):
    """The session has an automation with this message and schedule."""

    code = "duplicate_automation"


class ProtectedJob(AutomationsError):
    """This is a system job; it cannot be changed or removed."""

    code = "protected_job"


class NothingToSkip(AutomationsError):
    """The automation has no coming slot that could be skipped: it is paused or done, or none lies in the range."""

    code = "nothing_to_skip"


class NothingToMove(AutomationsError):
    """The automation has no coming slot at this time."""

    code = "nothing_to_move"


class RunNotFailed(AutomationsError):
    """The run has not failed; only a failed one can be tried again."""

    code = "run_not_failed"


class JobPaused(AutomationsError):
    """The automation is paused. Resume it first."""

    code = "job_paused"


class TooManyRoutines(AutomationsError):
    """The agent has its maximum of enabled routines."""

    code = "too_many_routines"


class DuplicateRoutine(AutomationsError):
    """The agent has a routine with this title and schedule, `routine_id`."""

    code = "duplicate_routine"

    def __init__(self, message: str = "", *, routine_id: str = "") -> None:
        super().__init__(message)
        self.routine_id = routine_id


class RoutineNotFound(JobNotFound):
    """There is no such routine."""


class BadMessage(_WithCode):
    """The scheduled message is not valid."""

    code = "bad_message"


class MessageNotFound(AutomationsError):
    """There is no such scheduled message."""

    code = "not_found"


class TooManyMessages(AutomationsError):
    """The session has its maximum of pending scheduled messages."""

    code = "too_many_scheduled_messages"


class MessageBeingSent(AutomationsError):
    """The message is being sent and cannot be cancelled any more."""

    code = "message_being_sent"


class MessageSent(AutomationsError):
    """The message was sent already."""

    code = "message_sent"


class MessageFailed(AutomationsError):
    """The message has failed and will not be sent; there is nothing to cancel."""

    code = "message_failed"


ScheduleCode = Literal[
    "bad_schedule", "bad_cron", "bad_rule", "bad_except", "bad_except_holidays", "missing_extra", "never_fires",
    "unknown_timezone", "past_at", "bad_interval", "bad_time",
]  # fmt: skip


class ScheduleError(ValueError):
    """The schedule is invalid. `code` is stable; `message` is a sentence for the person who wrote the schedule."""

    def __init__(self, code: ScheduleCode, message: str) -> None:
        super().__init__(message)
        self.code: ScheduleCode = code
        self.message = message
