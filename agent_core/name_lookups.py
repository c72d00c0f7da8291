"""Looks up host names for the whole process, so that a slow name server of a stranger's host holds up nobody else.

The system's resolver has no timeout of its own, so each look-up has a thread. Each user may have a few at once and is
given no other user's answers. As many are reserved for the server's own, whose user is empty. Answers are kept for a
short time.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 64  # look-ups at once
MOST_EACH: Final = 8  # look-ups of one user at once
MOST_WAITING: Final = 100  # look-ups of one user that wait for these
FRESH_SECONDS: Final = 30.0  # for which an answer is kept
FAILED_SECONDS: Final = 5.0  # for which it is kept that a name has no address
_MOST_KEPT: Final = 2_000  # answers


class TooManyLookups(Exception):
    """Too many look-ups of the user wait."""


@dataclass(eq=False, slots=True)
class _Lookup:
    """A look-up that waits, runs or has an answer. It is dropped if it has not begun by `begin_by` (monotonic)."""

    user: str
    host: str
    begin_by: float
    fresh_until: float = 0.0
    answer: Future[list[str]] = field(default_factory=Future)


class NameLookups:
    """The look-ups of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()  # by user
        self._waiting: list[_Lookup] = []
        self._kept: OrderedDict[tuple[str, str], _Lookup] = OrderedDict()

    def ask(self, host: str, user: str, seconds: float) -> Future[list[str]]:
        """Return the future addresses of a host; empty if it has none. It cannot be cancelled: others may wait for it.

        A look-up that has not begun after `seconds` never begins, and its future raises TimeoutError. Raises
        TooManyLookups.
        """
        now = time.monotonic()
        with self._lock:
            known = self._kept.get((user, host))
            if known is not None and (not known.answer.done() or now < known.fresh_until):
                return known.answer
            if sum(each.user == user for each in self._waiting) >= MOST_WAITING:
                raise TooManyLookups
            lookup = _Lookup(user=user, host=host, begin_by=now + seconds)
            lookup.answer.set_running_or_notify_cancel()
            self._kept[user, host] = lookup
            self._kept.move_to_end((user, host))
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            self._waiting.append(lookup)
            self._begin()
        return lookup.answer

    def _begin(self) -> None:
        """Begin the waiting look-ups that may run, in order."""
        now, still = time.monotonic(), []
        for lookup in self._waiting:
            if now > lookup.begin_by:
                lookup.answer.set_exception(TimeoutError())
            elif not self._has_room(lookup.user):
                still.append(lookup)
            else:
                self._running[lookup.user] += 1
                threading.Thread(target=self._run, args=[lookup], name="rondo-resolve", daemon=True).start()
        self._waiting = still

    def _has_room(self, user: str) -> bool:
        of_users = self._running.total() - self._running[""]
        return self._running[user] < MOST_EACH and (not user or of_users < MOST - MOST_EACH)

    def _run(self, lookup: _Lookup) -> None:
        found: list[str] = []
        try:
            found = [str(row[4][0]) for row in socket.getaddrinfo(lookup.host, None, type=socket.SOCK_STREAM)]
        except (OSError, ValueError):  # ValueError: no host name
            pass
        finally:
            lookup.fresh_until = time.monotonic() + (FRESH_SECONDS if found else FAILED_SECONDS)
            lookup.answer.set_result(found)
            with self._lock:
                self._running[lookup.user] -= 1
                self._running += Counter()  # drops users without a look-up
                self._begin()
