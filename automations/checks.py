"""The plain fields of an automation, each refused with a code and a reason of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from automations.exceptions import BadJob
from automations.models import CatchUp, Overlap
from sessions_app.lines import check_line

LONGEST_MESSAGE = 20_000  # characters
LONGEST_NAME = 200
LONGEST_TIMEOUT = 86_400  # seconds


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The values, when each is sound. BadJob; BadInput for a name of several lines."""
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


def _name(value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise BadJob("the name is empty", code="empty_name")
    if len(value) > LONGEST_NAME:
        raise BadJob(f"the name is longer than {LONGEST_NAME} characters", code="bad_name")
    check_line("name", value)


def _enabled(value: Any) -> None:
    if not isinstance(value, bool):
        raise BadJob("enabled must be true or false", code="bad_enabled")


def _one_of(name: str, known: list[str]) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value not in known:
            raise BadJob(f"{name} must be one of {', '.join(known)}", code=f"bad_{name}")

    return check


def _timeout(value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LONGEST_TIMEOUT:
        reason = f"timeout_seconds must be a whole number from 1 to {LONGEST_TIMEOUT}"
        raise BadJob(reason, code="bad_timeout_seconds")


_CHECKS: dict[str, Callable[[Any], None]] = {
    "name": _name,
    "message": _message,
    "enabled": _enabled,
    "overlap": _one_of("overlap", Overlap.values),
    "catch_up": _one_of("catch_up", CatchUp.values),
    "timeout_seconds": _timeout,
}
