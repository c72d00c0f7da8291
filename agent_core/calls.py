"""Making a tool call, at most once (rule 1.9)."""

from __future__ import annotations

import time

from agent_core.exchange import Watch
from agent_core.policy import TurnPolicy
from agent_core.ports import TurnPorts
from agent_core.schema import refusal
from agent_core.types import ToolCall, ToolResult, ToolSpec


class Calls:
    """A turn's tools."""

    def __init__(
        self, *, specs: dict[str, ToolSpec], ports: TurnPorts, watch: Watch, policy: TurnPolicy
    ) -> None:
        self.specs = specs
        self._ports = ports
        self._watch = watch
        self._policy = policy

    def result_of(self, call: ToolCall, intended: set[str]) -> ToolResult:
        """Make one call, unless it must not or need not be made. ``intended``: ids whose intent is journaled."""
        refused = refusal(call, self.specs)
        if call.id in intended and (refused is not None or not self.specs[call.name].idempotent):
            return self._ports.outcome_unknown(call)
        if refused is not None:
            return refused
        if call.id not in intended:
            self._ports.intend(call)
            intended.add(call.id)
        return self._make(call)

    def _make(self, call: ToolCall) -> ToolResult:
        control = self._watch.control
        longest = time.monotonic() + self._policy.tool_timeout_seconds
        control.tool_deadline = min(longest, self._watch.deadline)
        try:
            return self._ports.call(call)
        finally:
            control.tool_deadline = None
