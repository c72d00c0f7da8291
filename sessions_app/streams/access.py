"""The check of the readers' access: who may not read on is dropped within a second."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

from sessions_app.streams.rights import Right, lapsed
from sessions_app.streams.subscription import Subscription, Topics

RECHECK = 3.0  # seconds between checks of all readers, if no notification asks for one
SOONEST = 0.25  # seconds to a check for an expiry that our clock has passed, but the database's has not


class AccessCheck:
    """Drops readers whose access is no longer valid, with one statement for all.

    All are checked when a notification comes, when the first of their tokens expires, and every RECHECK seconds. A
    newcomer is checked once by itself: its token may have been revoked between its request and its subscription.
    """

    def __init__(self, topics: Topics, guard: threading.Condition) -> None:
        self._topics, self._guard = topics, guard
        self._next_check = 0.0
        self._newcomers: list[tuple[Subscription, Right]] = []

    def expect(self, subscription: Subscription) -> None:
        """Check a newcomer soon. The caller holds the guard."""
        if subscription.right is not None:
            self._newcomers.append((subscription, subscription.right))

    def recheck(self) -> None:
        """Check all readers soon. The caller holds the guard."""
        self._next_check = 0.0

    def is_due(self) -> bool:
        """Whether somebody is to be checked now."""
        return bool(self._newcomers) or time.monotonic() >= self._next_check

    def patience(self, seconds: float) -> float:
        """These seconds, or those until the next check of all if they are fewer."""
        return min(seconds, max(0.0, self._next_check - time.monotonic()))

    def revoke_lapsed(self) -> None:
        """Check those who are due. Used by the reading thread only."""
        with self._guard:
            is_whole = time.monotonic() >= self._next_check
            readers = self._topics.with_rights() if is_whole else self._newcomers
            self._newcomers = []
            # before the check, so that a notification during it asks for another one
            next_check = time.monotonic() + RECHECK if is_whole else self._next_check
            self._next_check = min(next_check, _first_expiry(readers))
        try:
            lapsing = lapsed([(right, each.opened) for each, right in readers]) if readers else set()
        except BaseException:
            with self._guard:
                self.recheck()
            raise
        for each in (readers[number][0] for number in lapsing):
            with self._guard:
                self._topics.leave(each)
            each.revoke()


def _first_expiry(readers: list[tuple[Subscription, Right]]) -> float:
    """When the first of the tokens expires, on the monotonic clock."""
    ends = [right.expires_at for _, right in readers if right.expires_at is not None]
    if not ends:
        return float("inf")
    seconds = (min(ends) - datetime.now(UTC)).total_seconds()
    return time.monotonic() + max(seconds, SOONEST)
