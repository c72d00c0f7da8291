"""The number of jobs that beat fires in one transaction: more while many are due, fewer when a batch takes long."""

from __future__ import annotations

LARGEST = 1_000
GROWTH = 3
LONGEST = 0.5  # seconds; a longer transaction keeps its rows from other beats, and its last slot late


class BatchSize:
    """`size` begins at `least`, grows while batches are full and quick, and shrinks with a slow one.

    After a failure it is `least` again.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self.size = least

    def fired(self, claimed: int, seconds: float) -> None:
        """A batch of `size` has claimed so many jobs in this time."""
        if seconds > LONGEST:
            self.size = max(self._least, self.size // GROWTH)
        elif claimed >= self.size:
            self.size = min(LARGEST, self.size * GROWTH)
        elif claimed < self._least:
            self.size = self._least

    def failed(self) -> None:
        """A batch has failed as a whole. The row at fault may be among the next ones again."""
        self.size = self._least
