"""The interfaces through which a running turn stores its steps and calls tools."""

from __future__ import annotations

from typing import Protocol

from agent_core.execution import Execution, Observation
from agent_core.types import Entry, ToolCall, ToolResult, TurnEvent, Usage


class TurnPorts(Protocol):
    """The ports of a turn. Each method is a fenced write and may raise ``Stale``."""

    def responded(self, entry: Entry, usage: Usage) -> None:
        """Journal a model response that has tool calls."""

    def intend(self, call: ToolCall) -> None:
        """Journal that a call is about to be made. It is committed when this returns."""

    def call(self, call: ToolCall) -> ToolResult:
        """Run the tool and journal its result. A tool's exception comes back as a failed result."""

    def outcome_unknown(self, call: ToolCall) -> ToolResult:
        """Journal and return that a call was interrupted and its outcome is unknown."""

    def injected(self) -> tuple[str, ...]:
        """Journal and return the messages to inject now, in the order in which they came."""


class PlanPorts(TurnPorts, Protocol):
    """The ports of a planned turn."""

    def saved(self, execution: Execution, event: TurnEvent, usage: Usage) -> None:
        """Store the execution with an event about it. ``usage`` is that of the turn so far.

        Raises Cancelled if somebody else ended the execution in the meantime.
        """

    def told(self, event: TurnEvent) -> None:
        """Store an event without a change of the execution."""

    def live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        """Read the current state of these kinds."""
