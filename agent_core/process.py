"""Values that each process makes for itself, such as its asyncio event loop: a forked child must not use its parent's.

All model streams share the one loop, because the models' client breaks when several loops use it: with a loop per
thread, 55 of 80 runs failed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")

CLOSED_AFTER = 1.0  # seconds; a collection of garbage takes less


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
    loop.call_soon(_close_abandoned_later, loop)
    threading.Thread(target=loop.run_forever, name="rondo-loop", daemon=True).start()
    return loop


def _close_abandoned_later(loop: asyncio.AbstractEventLoop) -> None:
    """Close async generators that were not read to their end a moment after they were collected.

    Any thread may collect them, one after the other. asyncio closes the first one at once, and with it the inner ones:
    while they run in the loop's thread the other one would collect them, too ("async generator already executing").
    """

    def collected(generator: AsyncGenerator[Any, Any]) -> None:
        loop.call_soon_threadsafe(loop.call_later, CLOSED_AFTER, close, generator)

    def close(generator: AsyncGenerator[Any, Any]) -> None:
        loop.create_task(generator.aclose())

    sys.set_asyncgen_hooks(finalizer=collected)
