"""Checks of the fields of automations and routines. Each field has its own error code.

Choices, which an automation may make instead of its agent, are checked with the agent, whose owner must be allowed to
use them. The quotas of a user are checked here as well; requests at the same instant may exceed them by their number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from agent_core.connections import MOST_TOKENS
from agent_core.exceptions import PolicyError
from automations.exceptions import AutomationsError, BadJob, TooManyMessages
from automations.gates import registry
from automations.models import (
    CatchUp,
    CronJob,
    ExecutionMode,
    MessageStatus,
    Overlap,
    ScheduledMessage,
    Source,
)
from sessions_app import permits
from sessions_app.agents.edit import check_model, used_connections
from sessions_app.channels.webhook import check_setting
from sessions_app.exceptions import BadInput
from sessions_app.limits import quotas
from sessions_app.limits.policies import check_policy
from sessions_app.models import Agent, Session
from sessions_app.single_line import check_line
from sessions_app.spending.caps import merge_caps

LONGEST_MESSAGE = 20_000  # characters
LONGEST_NAME = 200
LONGEST_JITTER = 86_400  # seconds
LONGEST_PING_URL = 1_900  # characters, with room for /fail
MOST_RUNS = 1_000_000
MOST_RETRIES = 10
TASK_TYPES = ("", "time_reminder")  # tasks that need no model; empty: any other task


def validated(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values unchanged. BadJob when one of them is not valid; BadInput for a name of several lines."""
    for name, value in values.items():
        check, *limits = _CHECKS[name]
        check(name, value, *limits)
    return values


def _message(_name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise BadJob("the message is empty", code="empty_message")
    if len(value) > LONGEST_MESSAGE:
        raise BadJob(f"the message is longer than {LONGEST_MESSAGE} characters", code="message_too_long")
    if "\x00" in value:
        raise BadJob("the message holds a NUL character", code="bad_message")


def _line(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise BadJob(f"the {name} is empty", code=f"empty_{name}")
    if len(value) > LONGEST_NAME:
        raise BadJob(f"the {name} is longer than {LONGEST_NAME} characters", code=f"bad_{name}")
    check_line(name, value)


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str) or "\x00" in value:
        raise BadJob(f"{name} must be text without a NUL character", code=f"bad_{name}")
    if len(value) > LONGEST_MESSAGE:
        raise BadJob(f"{name} must have at most {LONGEST_MESSAGE} characters", code=f"bad_{name}")


def _policy(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise BadJob("policy must be an object of limits", code=f"bad_{name}")
    try:
        check_policy({limit: number for limit, number in value.items() if number is not None})
    except PolicyError as error:
        raise BadJob(str(error), code=f"bad_{name}") from error


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise BadJob(f"{name} must be true or false", code=f"bad_{name}")


def _one_of(name: str, value: Any, known: Collection[str]) -> None:
    if value not in known:
        words = ", ".join(each or "(empty)" for each in known)
        raise BadJob(f"{name} must be one of {words}", code=f"bad_{name}")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadJob(f"{name} must be a whole number from {least} to {most}", code=f"bad_{name}")


def _whole_or_none(name: str, value: Any, least: int, most: int) -> None:
    if value is not None:
        _whole(name, value, least, most)


def _timeout(name: str, value: Any) -> None:
    """Check the time limit of a turn, which is at most the operator's."""
    _whole_or_none(name, value, 1, settings.RONDO_TURN_SECONDS)


def _ping_url(name: str, value: Any) -> None:
    """Check the address of a dead man's switch, which answers pings."""
    if not isinstance(value, str) or len(value) > LONGEST_PING_URL:
        raise BadJob(f"{name} must be a text of at most {LONGEST_PING_URL:,} characters", code=f"bad_{name}")
    try:
        check_setting(name, value)
    except BadInput as error:
        raise BadJob(str(error), code=error.code) from None


def _limits(_name: str, value: Any) -> None:
    """Check caps; null of one removes it. BadInput."""
    merge_caps({}, value)


# the check of each field, with its further arguments
_CHECKS: dict[str, tuple[Any, ...]] = {
    "name": (_line,),
    "message": (_message,),
    "enabled": (_flag,),
    "overlap": (_one_of, Overlap.values),
    "catch_up": (_one_of, CatchUp.values),
    "timeout_seconds": (_timeout,),
    "max_runs": (_whole_or_none, 1, MOST_RUNS),
    "jitter_seconds": (_whole, 0, LONGEST_JITTER),
    "max_retry": (_whole, 0, MOST_RETRIES),
    "ping_url": (_ping_url,),
    "limits": (_limits,),
    "title": (_line,),
    "description": (_text,),
    "instructions": (_text,),
    "policy": (_policy,),
    "execution_mode": (_one_of, (ExecutionMode.INLINE, ExecutionMode.ISOLATED)),
    "task_type": (_one_of, TASK_TYPES),
    "source": (_one_of, [each for each in Source.values if each != Source.SYSTEM]),
}


MODELS = ("model", "fallback_model")
CHOICES = (*MODELS, "max_output_tokens", "allow_tools", "gate")


def checked_choices(
    agent: Agent, given: Mapping[str, Any], job: CronJob | None = None, *, is_limited: bool = False
) -> dict[str, Any]:
    """Return the choices among the given values (rules 11.6, 11.7), as they are stored. BadJob, BadInput.

    A tool that `job` has already is accepted even if it is missing now. `is_limited`: models
    may name only connections that the agent uses already.
    """
    found = {name: given[name] for name in CHOICES if name in given}
    for name in MODELS:
        if found.get(name):
            check_model(name, agent, found[name], used_connections(agent) if is_limited else None)
    _check_length(found.get("max_output_tokens"))
    if found.get("allow_tools") is not None:
        stored = (job.allow_tools if job else None) or ()
        found["allow_tools"] = _tools(agent, found["allow_tools"], stored)
    if found.get("gate") is not None:
        found["gate"] = registry.checked(found["gate"])
    return found


def _check_length(value: Any) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_whole and 1 <= value <= MOST_TOKENS):
        text = f"max_output_tokens must be a whole number from 1 to {MOST_TOKENS:,}, or null"
        raise BadJob(text, code="bad_max_output_tokens")


def _tools(agent: Agent, given: Any, stored: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise BadJob("allow_tools must be a list of names of tools, or null", code="bad_allow_tools")
    return permits.check_allowed_tools(given, stored, agent.mcp_servers)


def choices_of(job: CronJob) -> dict[str, Any]:
    """The choices of a job that are not its agent's."""
    return {name: value for name in CHOICES if (value := getattr(job, name)) not in ("", None)}


def turn_choices(job: CronJob) -> dict[str, Any]:
    """The choices of a job as the input of its turns, so that later changes concern later slots only."""
    return {
        "model": job.model,
        "fallback_model": job.fallback_model,
        "max_output_tokens": job.max_output_tokens,
        "allow_tools": None if job.allow_tools is None else tuple(job.allow_tools),
        "gate": job.gate,
    }


FREQUENT = 60  # seconds; a shorter interval counts as frequent
MOST_FREQUENT = 10  # automations and routines of one user with such an interval


def check_quota(job: CronJob, error: type[AutomationsError]) -> None:
    """Raise the error if the owner of this enabled job has as many others as a user may have.

    Jobs without slots left and system jobs do not count. Call it in the transaction that stores the job, after
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
