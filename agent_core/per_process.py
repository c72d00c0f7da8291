"""Values that each process makes for itself, because a forked child must not use its parent's connections."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """One value for each process. A fork waits for the lock, so that no child starts with it held."""

    def __init__(self) -> None:
        self._values: dict[int, T] = {}
        self._lock = lock = threading.RLock()
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

    def get(self, make: Callable[[], T]) -> T:
        """Return this process's value, made on first use."""
        with self._lock:
            if (value := self.peek()) is None:
                value = self._values[os.getpid()] = make()
            return value

    def peek(self) -> T | None:
        """Return this process's value, None before its first use."""
        return self._values.get(os.getpid())

    def put(self, value: T) -> None:
        """Set this process's value."""
        self._values[os.getpid()] = value
