"""Makes a tool call at most once (rule 1.9), and counts calls and failures against the policy (rule 3.2)."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass

from agent_core.policy import TurnPolicy
from agent_core.telemetry import spans
from agent_core.tool_spec import ToolSpec
from agent_core.tools.schema import BAD_ARGUMENTS, refusal
from agent_core.turn.control import TurnPorts
from agent_core.turn.endings import GivenUp
from agent_core.turn.exchange import Watch
from agent_core.types import ToolCall, ToolOutcome, ToolResult

# A word with a digit is taken for a number or an id, and so is a long run of hexadecimal letters.
_IDS = re.compile(r"\b(?:\w*\d\w*|[0-9a-f]{8,})(?:-(?:\w*\d\w*|[0-9a-f]{4,}))*\b", re.IGNORECASE)


class Limits:
    """The counters of one turn. Each method raises GivenUp when a limit is exceeded."""

    def __init__(self, policy: TurnPolicy) -> None:
        self._policy = policy
        self._calls = 0
        self._failed = 0
        self._intents: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def count_call(self, call: ToolCall) -> None:
        """Count a call before it is made."""
        self._calls += 1
        wanted = intent(call)
        self._intents[wanted] += 1
        if self._calls > self._policy.max_tool_calls:
            raise GivenUp("max_tool_calls")
        if self._intents[wanted] > self._policy.max_same_tool_intent:
            raise GivenUp("max_same_tool_intent")

    def count_result(self, result: ToolResult) -> None:
        """Count a failed result. Equal failures end the turn, unless bad arguments are the cause: then the model is
        told more.
        """
        if result.outcome is not ToolOutcome.FAILED:
            return
        self._failed += 1
        signature = failure_signature(result)
        self._failures[signature] += 1
        is_told_more = result.error_class == BAD_ARGUMENTS  # see refusal() in tools/schema.py
        if not is_told_more and self._failures[signature] >= self._policy.max_same_failure_signature:
            raise GivenUp("max_same_failure_signature")
        if self._failed >= self._policy.max_failed_tool_outputs:
            raise GivenUp("max_failed_tool_outputs")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCaller:
    """Makes the tool calls of a turn."""

    specs: dict[str, ToolSpec]
    ports: TurnPorts
    watch: Watch
    policy: TurnPolicy

    def result_of(self, call: ToolCall, intended: set[str], *, again: bool = False) -> ToolResult:
        """Return the result of a call. ``intended`` are the ids of calls whose intent is journaled, and
        ``again`` says that the turn has made the same call before with bad arguments.

        A refused call is not made. An interrupted call is repeated only if its tool is idempotent.
        """
        refused = refusal(call, self.specs, again=again)
        if call.id in intended and (refused is not None or not self.specs[call.name].idempotent):
            return self.ports.outcome_unknown(call)
        if refused is not None:
            return refused
        if call.id not in intended:
            self.ports.intend(call)
            intended.add(call.id)
        return self._make(call)

    def _make(self, call: ToolCall) -> ToolResult:
        control = self.watch.control
        longest = time.monotonic() + self.policy.tool_timeout_seconds
        control.tool_deadline = min(longest, self.watch.deadline)
        about = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
        }
        try:
            with spans.span(f"execute_tool {call.name}", about) as span:
                result = self.ports.call(call)
                if result.outcome is not ToolOutcome.OK:
                    spans.fail(span, result.outcome)
                return result
        finally:
            control.tool_deadline = None
