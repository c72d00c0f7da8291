from __future__ import annotations

from typing import Any

import pytest

from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy


def test_default_times_are_those_of_rule_3_2() -> None:
    assert (TurnPolicy().timeout_seconds, TurnPolicy().tool_timeout_seconds) == (600, 60)


def test_job_settings_override_agent_settings_and_those_override_defaults() -> None:
    merged = TurnPolicy().merged({"max_tool_calls": 5, "timeout_seconds": 20}, {"timeout_seconds": 9.5})
    assert merged == TurnPolicy(max_tool_calls=5, timeout_seconds=9.5)


@pytest.mark.parametrize(
    "override",
    [
        {"max_tool_call": 3},
        {"max_tool_calls": -1},
        {"max_tool_calls": 2.5},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": None},
        {"backoff_seconds": -1},
    ],
)
def test_an_unknown_key_or_a_bad_value_is_refused(override: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        TurnPolicy().merged(override)
