"""A bounded pool of threads for requests, with a bounded wait for one."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

from sessions_app.exceptions import NoThreadFree
from sessions_app.postgres.connection import count_wait

PATIENCE = 5.0  # seconds that a request waits for a thread

T = TypeVar("T")


class RequestThreads:
    """A pool of `threads` threads; further requests wait in order, for at most PATIENCE."""

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"rondo-{name}")
        self._free = asyncio.Semaphore(threads)

    async def run(self, work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
        """The result of `work`, run in a thread. Raises NoThreadFree.

        A thread that has begun continues when the caller is cancelled, and is busy until it ends; its result then
        goes to `undo`.
        """
        came_at = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            raise NoThreadFree from None
        count_wait(time.monotonic() - came_at)
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        done = loop.run_in_executor(self._pool, context.run, _run_and_close, work)
        done.add_done_callback(lambda _: self._free.release())
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if undo is not None:
                done.add_done_callback(lambda given: given.exception() or undo(given.result()))
            raise


def _run_and_close(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        connections.close_all()  # back to the pool; this thread may be idle for long
