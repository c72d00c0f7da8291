"""A turn that begins for a person goes before other work of its process: queues that go on, and automations.

The threads of a process share one interpreter, so a session with a long queue would slow each step of such a turn. At
each of its own steps other work waits until no such turn needs the processor, for a short time at most. A person's hint
says that a turn begins for a person, an automation's that none does. Such a turn counts from the moment its hint is
received.

A queue that goes on also rests before each step, from its third turn under the same lock, while a slot is free. So
whoever comes next, also while its hint is not received yet, mostly finds the interpreter idle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Seconds. A turn that begins has precedence for this long after each of its steps has begun: longer than a step takes
# without a model. Other work waits at most this long before each of its own steps.
LONGEST = 0.03
LONGEST_REST = 0.002  # seconds; a queue rests as long as its last step took, and no longer than this


class Newcomers:
    """The turns that begin in this process, each with the time until which it counts. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._until: dict[Place | None, float] = {}  # None: the one that is expected

    @property
    def some(self) -> bool:
        """Whether there are any, including those that have no precedence any more."""
        return bool(self._until)

    def expect(self) -> None:
        """Count a turn whose hint was received, until one begins."""
        with self._changed:
            self._until[None] = time.monotonic() + LONGEST

    def count(self, place: Place) -> None:
        """Count the turn at this place from now on."""
        with self._changed:
            if place not in self._until:
                self._until.pop(None, None)
            self._until[place] = time.monotonic() + LONGEST

    def forget(self, place: Place) -> None:
        """Count it no longer."""
        with self._changed:
            if self._until.pop(place, None) is not None:
                self._changed.notify_all()

    def wait_until_none_counts(self) -> None:
        """Wait until none counts, for at most `LONGEST`."""
        if not self.some:
            return
        give_up = time.monotonic() + LONGEST
        with self._changed:
            while (left := min(max(self._until.values(), default=0.0), give_up) - time.monotonic()) > 0:
                self._changed.wait(left)


class Place:
    """The place of one slot's work among that of the others.

    `is_busy`: whether many sessions are at work. `is_full`: whether others may wait for a slot.
    """

    def __init__(
        self,
        newcomers: Newcomers,
        *,
        is_new: bool,
        is_busy: Callable[[], bool],
        is_full: Callable[[], bool],
    ) -> None:
        self._newcomers, self._is_new = newcomers, is_new
        self._is_busy, self._is_full = is_busy, is_full
        self._turns = 0  # that have ended here
        self._is_waited_for = False
        self._step_began = time.monotonic()

    def step(self) -> None:
        """Begin a step of a turn. In a busy process all are alike: turns begin all the time, and waiting costs time."""
        if not self._is_busy():
            self._give_way()
        self._step_began = time.monotonic()

    def end_turn(self, *, elsewhere: bool = False) -> None:
        """The turn has ended; further ones at this place are not new.

        `elsewhere`: another session waits for a turn of the same user to end.
        """
        self._turns += 1
        self._is_waited_for = elsewhere
        if self._is_new:
            self._is_new = False
            self._newcomers.forget(self)

    def _give_way(self) -> None:
        if self._is_new:
            self._newcomers.count(self)
            return
        if self._turns > 1 and not self._is_waited_for and not self._is_full():
            self._rest()
        self._newcomers.wait_until_none_counts()

    def _rest(self) -> None:
        time.sleep(min(time.monotonic() - self._step_began, LONGEST_REST))


ALONE = Place(Newcomers(), is_new=False, is_busy=lambda: True, is_full=lambda: True)  # beside no other work
