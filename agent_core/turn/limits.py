"""Counts a turn's tool calls and failures against its policy (rule 3.2)."""

from __future__ import annotations

import json
import re
from collections import Counter

from agent_core.policy import TurnPolicy
from agent_core.tools.schema import BAD_ARGUMENTS
from agent_core.types import ToolCall, ToolOutcome, ToolResult

# A word with a digit is taken for a number or an id, and so is a long run of hexadecimal letters.
_IDS = re.compile(r"\b(?:\w*\d\w*|[0-9a-f]{8,})(?:-(?:\w*\d\w*|[0-9a-f]{4,}))*\b", re.IGNORECASE)


class Limits:
    """The counters of one turn. Each method returns the name of a limit that was exceeded, or None."""

    def __init__(self, policy: TurnPolicy) -> None:
        self._policy = policy
        self._calls = 0
        self._failed = 0
        self._intents: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def count_call(self, call: ToolCall) -> str | None:
        """Count a call before it is made."""
        self._calls += 1
        wanted = intent(call)
        self._intents[wanted] += 1
        if self._calls > self._policy.max_tool_calls:
            return "max_tool_calls"
        if self._intents[wanted] > self._policy.max_same_tool_intent:
            return "max_same_tool_intent"
        return None

    def count_result(self, result: ToolResult) -> str | None:
        """Count a result; only failed ones matter. Bad arguments may fail equally: the model is told more."""
        if result.outcome is not ToolOutcome.FAILED:
            return None
        self._failed += 1
        signature = failure_signature(result)
        self._failures[signature] += 1
        is_told_more = result.error_class == BAD_ARGUMENTS  # see refusal() in tools/schema.py
        if not is_told_more and self._failures[signature] >= self._policy.max_same_failure_signature:
            return "max_same_failure_signature"
        if self._failed >= self._policy.max_failed_tool_outputs:
            return "max_failed_tool_outputs"
        return None


def intent(call: ToolCall) -> str:
    """Return a text that is equal for equal calls: the tool and its canonical arguments."""
    if call.unparsed is not None:
        return f"{call.name} {call.unparsed}"
    canonical = json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)
    return f"{call.name} {canonical}"


def failure_signature(result: ToolResult) -> str:
    """Return a text that is equal for equal failures: tool, error class, text without numbers and ids."""
    text = " ".join(_IDS.sub("#", result.output).split())
    return f"{result.name} {result.error_class} {text}"
