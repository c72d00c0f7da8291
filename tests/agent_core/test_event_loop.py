from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

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
