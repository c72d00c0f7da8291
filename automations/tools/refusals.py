"""Refusals of tool calls, worded so that the model can act on them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from agent_core.exceptions import ToolFailed
from automations.exceptions import BadJob, DuplicateJob, TooManyJobs, TooManyRoutines
from automations.schedules.describe import instant_text
from sessions_app.exceptions import SessionsError


class AlreadyScheduled(ToolFailed):
    """The call would schedule what is scheduled already. The pages say so, and show no failure."""


def failed(error: SessionsError, text: str) -> ToolFailed:
    """The failure of a call with this text."""
    return (AlreadyScheduled if isinstance(error, DuplicateJob) else ToolFailed)(text)


def refuse_unknown(arguments: dict[str, Any], known: Iterable[str], *, ignored: Iterable[str] = ()) -> None:
    """ToolFailed for a parameter that the tool does not have."""
    names = list(known)
    unknown = sorted(arguments.keys() - {*names, *ignored})
    if unknown:
        raise ToolFailed(f"unknown parameter {unknown[0]!r}; the parameters are {', '.join(names)}")


def advice(error: SessionsError, zone: str, *, zone_parameter: str) -> str:
    """The error with what the model needs to correct the call. `zone`: the agent's."""
    if isinstance(error, TooManyJobs | TooManyRoutines):
        return f"{error}; remove one first"
    if isinstance(error, BadJob) and error.code == "past_at":
        return f"{error} It is now {instant_text(datetime.now(UTC), zone)} ({zone})."
    if isinstance(error, BadJob) and error.code == "unknown_timezone":
        return f"{error} {zone_parameter} takes an IANA name such as Europe/Berlin."
    return str(error)
