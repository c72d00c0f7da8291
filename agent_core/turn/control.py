"""What a running turn shares with its caller: signals from other threads, and the ports that store its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Protocol

from agent_core.execution import Execution, Observation
from agent_core.tool_spec import Effect
from agent_core.types import Entry, ToolCall, ToolResult, TurnEvent, Usage


class Signal(IntEnum):
    """The signals to a turn; the greater one wins."""

    STOP = 1
    CANCEL = 2
    LOSE = 3


class TurnControl:
    """Passes signals to a turn. Any thread may call ``cancel``, ``stop`` and ``lose``, any number of times.

    ``deadline_seconds`` bounds the turn from now on, in addition to the policy's timeout; None: no bound.
    ``tool_deadline`` is the instant (``time.monotonic`` seconds) by which the current tool call must end, None between
    calls. The worker's watchdog reads it (rule 1.12).
    ``used`` is the usage of all model replies under this control, also of those that nobody could use.
    """

    def __init__(self, deadline_seconds: float | None = None) -> None:
        self.deadline: float | None = (
            None if deadline_seconds is None else time.monotonic() + deadline_seconds
        )
        self.tool_deadline: float | None = None
        self.used = Usage()
        self._lock = threading.Lock()
        self._signal: Signal | None = None
        self._listeners: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """End the turn as cancelled, with what was said so far."""
        self._raise_to(Signal.CANCEL)

    def stop(self) -> None:
        """Hand the turn back at its step, for another worker."""
        self._raise_to(Signal.STOP)

    def lose(self) -> None:
        """The turn is no longer this worker's: it raises Stale at its next boundary."""
        self._raise_to(Signal.LOSE)

    @property
    def signal(self) -> Signal | None:
        """The strongest signal so far."""
        return self._signal

    def wait(self, seconds: float) -> bool:
        """Sleep until a signal comes (True) or the time is over (False). Tools may use it too."""
        woken = threading.Event()
        with self.waking(woken.set):
            return woken.wait(max(0.0, seconds))

    @contextmanager
    def waking(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` at each signal while the block runs, and at once if one came before.

        It runs in the signalling thread, so it must be quick and must not raise.
        """
        with self._lock:
            self._listeners.append(listener)
            signalled = self._signal is not None
        try:
            if signalled:
                listener()
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def _raise_to(self, signal: Signal) -> None:
        with self._lock:
            if self._signal is None or signal > self._signal:
                self._signal = signal
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()


class TurnPorts(Protocol):
    """The functions of the caller that store a turn's steps. Each method is a fenced write and may raise ``Stale``."""

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
    """The functions of the caller that store a planned turn's work, and read live state for it."""

    def saved(self, execution: Execution, event: TurnEvent, usage: Usage) -> None:
        """Store the execution with an event about it. ``usage`` is that of the turn so far.

        Raises Cancelled if somebody else ended the execution in the meantime.
        """

    def told(self, event: TurnEvent) -> None:
        """Store an event without a change of the execution."""

    def is_restricted(self, effect: Effect) -> bool:
        """Whether a call with this effect needs a person's consent now, unless its tool is allowed by name."""

    def live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        """Read the current state of these kinds."""
