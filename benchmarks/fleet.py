"""Worker processes as a fleet runs them, and the queues between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.supervisor.spawn import spawn

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE, every: float = 0.02) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A Celery worker process and its log."""

    child: subprocess.Popen[bytes]
    log: Path

    def signal(self, number: int) -> None:
        self.child.send_signal(number)


@contextmanager
def worker(folder: Path, name: str, concurrency: int, **environ: str) -> Iterator[Worker]:
    """A worker with the settings of production, stopped at the end."""
    log = folder / f"{name}.log"
    command = ["worker", "-P", "threads", "-c", str(concurrency), "--without-gossip", "--without-mingle"]
    child = spawn(
        [sys.executable, "-m", "celery", "-A", "config", *command, "-n", f"{name}@%h"],
        log=log,
        cwd=ROOT,
        environ=os.environ | {"PGAPPNAME": f"bench {name}"} | environ,
    )
    made = Worker(child=child, log=log)
    try:
        until(lambda: _is_ready(made), f"{name} is ready; see {log}", 60)
        yield made
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def workers(folder: Path, count: int, concurrency: int, **environ: str) -> Iterator[list[Worker]]:
    """Several of them."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(worker(folder, f"worker{n}", concurrency, **environ))
            for n in range(1, count + 1)
        ]


def _is_ready(made: Worker) -> bool:
    text = made.log.read_text(errors="replace")
    if made.child.poll() is not None:
        raise RuntimeError(f"a worker died:\n{text[-3000:]}")
    return "worker_ready" in text


def waiting_hints() -> int:
    """How many messages the broker holds in all our queues."""
    from celery import current_app

    from sessions_app.wake import shard_queues

    with current_app.connection_for_read() as connection:
        channel = connection.default_channel
        return sum(_size(channel, name) for name in shard_queues())


def _size(channel: Any, name: str) -> int:
    if hasattr(channel, "_size"):  # Redis: asking by declaration costs three round trips
        return int(channel._size(name))  # noqa: SLF001
    return int(channel.queue_declare(name, passive=True).message_count)


def purge() -> None:
    """Drop every hint that waits."""
    from celery import current_app

    from sessions_app import wake

    wake.flush(30.0)
    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        for name in wake.shard_queues():
            channel.queue_purge(name)
