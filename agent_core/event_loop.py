"""The process's one asyncio event loop, in a thread of its own.

All model streams share it, because the models' client breaks when several loops use it: with a loop per thread, 55 of
80 runs failed. A forked child starts its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from agent_core.per_process import PerProcess

T = TypeVar("T")

_loop: PerProcess[asyncio.AbstractEventLoop] = PerProcess()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the loop's thread. Cancelling the future cancels the coroutine."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop.get(_start))


def _start() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rondo-loop", daemon=True).start()
    return loop
