"""Limits of turns as users give them. No turn lasts longer than the operator allows (RONDO_TURN_SECONDS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings

from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy


def check_policy(given: Mapping[str, Any]) -> None:
    """Raise PolicyError for limits that a user cannot give."""
    seconds, most = TurnPolicy().merged(given).timeout_seconds, settings.RONDO_TURN_SECONDS
    if "timeout_seconds" in given and seconds > most:
        raise PolicyError(
            f"timeout_seconds must be at most {most}, the limit of this server, not {seconds:g}."
        )


def policy_of(*given: Mapping[str, Any]) -> TurnPolicy:
    """Return the limits of a turn; later ones take precedence. PolicyError.

    The time is cut to the operator's limit, which may be newer than a stored policy.
    """
    policy = TurnPolicy().merged(*given)
    return replace(policy, timeout_seconds=min(policy.timeout_seconds, settings.RONDO_TURN_SECONDS))
