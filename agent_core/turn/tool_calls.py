"""Makes a tool call at most once (rule 1.9)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from agent_core.policy import TurnPolicy
from agent_core.telemetry import spans
from agent_core.tool_spec import ToolSpec
from agent_core.tools.schema import refusal
from agent_core.turn.exchange import Watch
from agent_core.turn.ports import TurnPorts
from agent_core.types import ToolCall, ToolOutcome, ToolResult


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
                    span.fail(result.outcome)
                return result
        finally:
            control.tool_deadline = None
