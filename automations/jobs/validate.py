"""Checks of the fields of automations and routines. Each field has its own error code.

Quotas of one user are checked here, too; requests at the same instant may exceed one by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from agent_core.exceptions import PolicyError
from automations.exceptions import AutomationsError, BadJob, TooManyMessages
from automations.models import (
    CatchUp,
    CronJob,
    ExecutionMode,
    MessageStatus,
    Overlap,
    ScheduledMessage,
    Source,
)
from sessions_app.channels.webhook import check_setting
from sessions_app.exceptions import BadInput
from sessions_app.limits import quotas
from sessions_app.limits.policies import check_policy
from sessions_app.models import Session
from sessions_app.single_line import check_line

LONGEST_MESSAGE = 20_000  # characters
LONGEST_NAME = 200
LONGEST_JITTER = 86_400  # seconds
LONGEST_PING_URL = 1_900  # characters, with room for /fail
MOST_RUNS = 1_000_000
MOST_RETRIES = 10
TASK_TYPES = ("", "time_reminder")  # tasks that need no model; empty: any other task


def validated(values: dict[str, Any]) -> dict[str, Any]:
    """The same values. BadJob when one of them is not valid; BadInput for a name of several lines."""
    for name, value in values.items():
        _CHECKS[name](value)
    return values


def _message(value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise BadJob("the message is empty", code="empty_message")
    if len(value) > LONGEST_MESSAGE:
        raise BadJob(f"the message is longer than {LONGEST_MESSAGE} characters", code="message_too_long")
    if "\x00" in value:
        raise BadJob("the message holds a NUL character", code="bad_message")


def _line(name: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not isinstance(value, str) or not value.strip():
            raise BadJob(f"the {name} is empty", code=f"empty_{name}")
        if len(value) > LONGEST_NAME:
            raise BadJob(f"the {name} is longer than {LONGEST_NAME} characters", code=f"bad_{name}")
        check_line(name, value)

    return check


def _text(name: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not isinstance(value, str) or "\x00" in value:
            raise BadJob(f"{name} must be text without a NUL character", code=f"bad_{name}")
        if len(value) > LONGEST_MESSAGE:
            raise BadJob(f"{name} must have at most {LONGEST_MESSAGE} characters", code=f"bad_{name}")

    return check


def _policy(value: Any) -> None:
    if not isinstance(value, dict):
        raise BadJob("policy must be an object of limits", code="bad_policy")
    try:
        check_policy({name: limit for name, limit in value.items() if limit is not None})
    except PolicyError as error:
        raise BadJob(str(error), code="bad_policy") from error


def _enabled(value: Any) -> None:
    if not isinstance(value, bool):
        raise BadJob("enabled must be true or false", code="bad_enabled")


def _one_of(name: str, known: Collection[str]) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value not in known:
            words = ", ".join(each or "(empty)" for each in known)
            raise BadJob(f"{name} must be one of {words}", code=f"bad_{name}")

    return check


def _whole(name: str, least: int, most: int, *, nullable: bool) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value is None and nullable:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            reason = f"{name} must be a whole number from {least} to {most}"
            raise BadJob(reason, code=f"bad_{name}")

    return check


def _timeout(value: Any) -> None:
    """Check the time limit of a turn, which is at most the operator's."""
    _whole("timeout_seconds", 1, settings.RONDO_TURN_SECONDS, nullable=True)(value)


def _ping_url(value: Any) -> None:
    """Check the address of a dead man's switch, which answers pings."""
    if not isinstance(value, str) or len(value) > LONGEST_PING_URL:
        raise BadJob(
            f"ping_url must be a text of at most {LONGEST_PING_URL:,} characters", code="bad_ping_url"
        )
    try:
        check_setting("ping_url", value)
    except BadInput as error:
        raise BadJob(str(error), code=error.code) from None


_CHECKS: dict[str, Callable[[Any], None]] = {
    "name": _line("name"),
    "message": _message,
    "enabled": _enabled,
    "overlap": _one_of("overlap", Overlap.values),
    "catch_up": _one_of("catch_up", CatchUp.values),
    "timeout_seconds": _timeout,
    "max_runs": _whole("max_runs", 1, MOST_RUNS, nullable=True),
    "jitter_seconds": _whole("jitter_seconds", 0, LONGEST_JITTER, nullable=False),
    "max_retry": _whole("max_retry", 0, MOST_RETRIES, nullable=False),
    "ping_url": _ping_url,
    "title": _line("title"),
    "description": _text("description"),
    "instructions": _text("instructions"),
    "policy": _policy,
    "execution_mode": _one_of("execution_mode", (ExecutionMode.INLINE, ExecutionMode.ISOLATED)),
    "task_type": _one_of("task_type", TASK_TYPES),
    "source": _one_of("source", [each for each in Source.values if each != Source.SYSTEM]),
}


FREQUENT = 60  # seconds; a shorter interval counts as frequent
MOST_FREQUENT = 10  # automations and routines of one user with such an interval


def check_quota(job: CronJob, error: type[AutomationsError]) -> None:
    """Raise the error if the owner of this enabled job has as many others as a user may have.

    Jobs without slots left and those of the system do not count. Call it in the transaction that stores the job, after
    its locks.
    """
    quotas.one_at_a_time("automations", job.agent.owner_id)
    others = CronJob.objects.filter(
        agent__owner_id=job.agent.owner_id, enabled=True, system_event="", clock__next_run_at__isnull=False
    ).exclude(pk=job.pk)
    most = settings.RONDO_AUTOMATIONS_PER_USER
    if _has(others, most):
        raise error(f"you have {most:,} enabled automations and routines, as many as a user may have here")
    is_frequent = job.every_seconds is not None and job.every_seconds < FREQUENT
    if is_frequent and _has(others.filter(every_seconds__lt=FREQUENT), MOST_FREQUENT):
        raise error(
            f"you have {MOST_FREQUENT} automations and routines with an interval of less than {FREQUENT} s, as many as"
            f" a user may have; use at least {FREQUENT} s"
        )


def check_message_quota(session: Session, *, replaces: bool) -> None:
    """TooManyMessages. `replaces`: the message takes the place of the session's pending ones.

    Call it in the transaction that stores the message.
    """
    quotas.one_at_a_time("messages", session.owner_id)
    pending = ScheduledMessage.objects.filter(
        status=MessageStatus.PENDING, session__owner_id=session.owner_id
    )
    most = settings.RONDO_AUTOMATIONS_PER_USER
    if _has(pending.exclude(session=session) if replaces else pending, most):
        raise TooManyMessages(
            f"you have {most:,} pending scheduled messages, as many as a user may have here; cancel some first"
        )


def count_texts(job: CronJob) -> None:
    """Count the texts of a job that is stored among what its user stores."""
    quotas.count_texts(job.agent.owner_id, job.message, job.description)


def stored_texts(owner_id: int) -> int:
    """Return the bytes of the texts of a user's automations and routines."""
    return quotas.octets(CronJob.objects.filter(agent__owner_id=owner_id), "message", "description")


def _has(rows: QuerySet[CronJob] | QuerySet[ScheduledMessage], most: int) -> bool:
    return rows.order_by()[most - 1 : most].exists()
