"""How long a reply may be: its text, its reasoning and the arguments of its calls together, its calls and its parts.

The work of the providers' client grows with the square of the number of parts: with 2,000 it takes a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_CALLS: Final = 64  # of one reply
MOST_PARTS: Final = 256  # of one reply: calls, and pieces of text and reasoning that take turns
LONGEST_REPLY: Final = 400_000  # characters

_longest: Callable[[], int] = lambda: LONGEST_REPLY  # noqa: E731


def use_longest_reply(longest: Callable[[], int]) -> None:
    """Set the process's function that returns the most characters of one reply."""
    global _longest  # noqa: PLW0603 - set once, when the process starts
    _longest = longest


def longest_reply() -> int:
    """Return the most characters of one reply."""
    return _longest()


class Bounds:
    """What is left for the rest of one reply."""

    def __init__(self) -> None:
        self.characters, self.calls, self.parts = longest_reply(), MOST_CALLS, MOST_PARTS

    def take(self, size: int, *, begins_part: bool, begins_call: bool) -> bool:
        """Count a piece. False: it does not fit, and only its first ``characters`` may still be taken."""
        if size > self.characters or (begins_call and not self.calls) or (begins_part and not self.parts):
            return False
        self.characters -= size
        self.calls -= begins_call
        self.parts -= begins_part
        return True
