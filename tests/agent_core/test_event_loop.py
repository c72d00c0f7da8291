import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_core import models, process


async def where() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


def test_everything_runs_on_one_thread_that_is_not_ours() -> None:
    with ThreadPoolExecutor(8) as pool:
        idents = set(pool.map(lambda _: process.submit(where()).result(5), range(40)))
    assert len(idents) == 1
    assert threading.get_ident() not in idents


def test_cancelling_the_future_cancels_the_coroutine() -> None:
    seen = threading.Event()

    async def sleeper() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.set()

    future = process.submit(sleeper())
    process.submit(where()).result(5)
    future.cancel()
    assert seen.wait(5)


def test_a_forked_child_gets_its_own_loop_and_models() -> None:
    process.submit(where()).result(5)
    mine = models.resolve("offline")
    child = os.fork()
    if child == 0:
        try:
            fine = models.resolve("offline") is not mine and process.submit(where()).result(5) > 0
        except BaseException:  # noqa: BLE001 - the child must not go on as a test run
            fine = False
        os._exit(0 if fine else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


class Abandoned:
    """A stream that is read no further, in a cycle of references as the models' clients have them."""

    def __init__(self, closed: threading.Event) -> None:
        self.outer = self._outer()
        self.slow = Slow()
        self.closed = closed

    async def _outer(self) -> AsyncGenerator[int, None]:
        self.inner = self._inner()
        try:
            async for each in self.inner:
                yield each
        finally:
            await self.inner.aclose()
            self.closed.set()

    async def _inner(self) -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            time.sleep(0.3)  # noqa: ASYNC251 - it is being closed for so long


class Slow:
    """The collection takes long enough for the other thread to go on."""

    def __del__(self) -> None:
        time.sleep(0.1)


@pytest.mark.full
def test_an_abandoned_stream_is_closed_after_another_thread_has_collected_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    closed = threading.Event()

    async def begin() -> int:
        return await anext(Abandoned(closed).outer)

    gc.collect()
    gc.disable()
    try:
        assert process.submit(begin()).result(5) == 1
        process.submit(where()).result(5)  # the loop holds the first one no more
        gc.collect()
    finally:
        gc.enable()
    assert closed.wait(5)
    assert [str(each.exc_value) for each in ignored] == []
