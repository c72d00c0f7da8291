"""Values that each process makes for itself, such as its asyncio event loop: a forked child must not use its parent's.

All model streams share the one loop, because the models' client breaks when several loops use it: with a loop per
thread, 55 of 80 runs failed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

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


_loop: PerProcess[asyncio.AbstractEventLoop] = PerProcess()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the loop's thread. Cancelling the future cancels the coroutine."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop.get(_start))


def _start() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rondo-loop", daemon=True).start()
    return loop
