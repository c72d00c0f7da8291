"""What a running turn needs from outside."""

from __future__ import annotations

from typing import Protocol

from agent_core.execution import Execution, Observation
from agent_core.types import Entry, ToolCall, ToolResult, TurnEvent, Usage


class TurnPorts(Protocol):
    """What a turn needs from outside. Each call is a fenced write and may raise ``Stale``."""

    def responded(self, entry: Entry, usage: Usage) -> None:
        """Journal a model response that has tool calls."""

    def intend(self, call: ToolCall) -> None:
        """Journal that a call is about to be made; committed when this returns."""

    def call(self, call: ToolCall) -> ToolResult:
        """Run the tool and journal its result. A tool's exception comes back as a failed result."""

    def outcome_unknown(self, call: ToolCall) -> ToolResult:
        """Journal and return that a call was interrupted and its outcome is unknown."""

    def injected(self) -> tuple[str, ...]:
        """Take the people's messages to inject now, journaled; in the order they came."""


class PlanPorts(TurnPorts, Protocol):
    """What a planned turn needs beyond that."""

    def saved(self, execution: Execution, event: TurnEvent, usage: Usage) -> None:
        """Store the execution with an event that tells of it. ``usage``: of the turn so far.

        Raises Cancelled when the execution was ended by somebody else meanwhile.
        """

    def told(self, event: TurnEvent) -> None:
        """Store an event that changes nothing."""

    def live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        """Read these kinds of live state now."""
