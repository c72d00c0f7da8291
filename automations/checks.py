"""The plain fields of an automation, each refused with its own reason."""

from __future__ import annotations

from typing import Any

from automations.exceptions import BadJob
from automations.models import CatchUp, Overlap

LONGEST_MESSAGE = 20_000  # characters
LONGEST_NAME = 200
LONGEST_TIMEOUT = 86_400  # seconds


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The plain fields, each refused with its own reason."""
    for name, value in values.items():
        problem = _CHECKS[name](value)
        if problem:
            raise BadJob(problem, code=f"empty_{name}" if value == "" else f"bad_{name}")
    return values


def _text(name: str, longest: int) -> Any:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            return f"the {name} is empty"
        if len(value) > longest:
            return f"the {name} is longer than {longest} characters"
        return f"the {name} holds a NUL character" if "\x00" in value else ""

    return check


def _one_of(name: str, known: list[str]) -> Any:
    return lambda value: "" if value in known else f"{name} must be one of {', '.join(known)}"


def _timeout(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LONGEST_TIMEOUT:
        return f"timeout_seconds must be a whole number from 1 to {LONGEST_TIMEOUT}"
    return ""


_CHECKS: dict[str, Any] = {
    "name": _text("name", LONGEST_NAME),
    "message": _text("message", LONGEST_MESSAGE),
    "enabled": lambda value: "" if isinstance(value, bool) else "enabled must be true or false",
    "overlap": _one_of("overlap", Overlap.values),
    "catch_up": _one_of("catch_up", CatchUp.values),
    "timeout_seconds": _timeout,
}
