"""The limits of one turn (rule 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from agent_core.exceptions import PolicyError

_LEAST = {
    "max_attempts": 1,
    "max_tool_calls": 0,
    "max_failed_tool_outputs": 1,
    "max_same_failure_signature": 1,
    "max_same_tool_intent": 1,
}
_LONGEST_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnPolicy:
    """Limits of one turn. Times are seconds.

    The 15th tool call, the 3rd failed output, the 2nd equal failure and the 4th equal intent end
    the turn with the limit's name as its error code. ``max_attempts`` counts the tries of one model
    call. ``timeout_seconds`` is for the whole turn within one attempt.
    """

    max_attempts: int = 3
    max_tool_calls: int = 14
    max_failed_tool_outputs: int = 3
    max_same_failure_signature: int = 2
    max_same_tool_intent: int = 3
    timeout_seconds: float = 600.0
    tool_timeout_seconds: float = 60.0
    backoff_seconds: float = 1.0

    def merged(self, *overrides: Mapping[str, Any]) -> TurnPolicy:
        """Return this policy with the overrides applied; later ones take precedence.

        Raises PolicyError for an unknown key or a bad value.
        """
        values: dict[str, int | float] = {}
        for override in overrides:
            values.update({key: _checked(key, value) for key, value in override.items()})
        return replace(self, **values)  # type: ignore[arg-type]

    def strictest(self, *overrides: Mapping[str, Any]) -> dict[str, int | float]:
        """Return the least value of each limit over several overrides, where it differs from this policy's.

        Raises PolicyError.
        """
        merged = [self.merged(override) for override in overrides]
        least = {name: min(getattr(policy, name) for policy in merged) for name in _NAMES} if merged else {}
        return {name: limit for name, limit in least.items() if limit != getattr(self, name)}


def _checked(key: str, value: object) -> int | float:
    if key not in _NAMES:
        raise PolicyError(f"Unknown policy key {key[:60]!r}. Known: {', '.join(_NAMES)}.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f"{key} must be a number, not {type(value).__name__}.")
    if key in _LEAST:
        if not isinstance(value, int) or not _LEAST[key] <= value <= 1000:
            raise PolicyError(f"{key} must be a whole number from {_LEAST[key]} to 1000.")
        return value
    least = 0.0 if key == "backoff_seconds" else 0.01
    if not least <= value <= _LONGEST_SECONDS:
        raise PolicyError(f"{key} must be seconds from {least:g} to {_LONGEST_SECONDS:g}.")
    return float(value)


_NAMES = tuple(field.name for field in fields(TurnPolicy))
