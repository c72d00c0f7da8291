"""Worker processes as a fleet runs them, and the queues between."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    """A process of ours and its log."""

    child: subprocess.Popen[bytes]
    log: Path

    def signal(self, number: int) -> None:
        self.child.send_signal(number)


@contextmanager
def worker(folder: Path, name: str, concurrency: int, **environ: str) -> Iterator[Worker]:
    """A worker with the settings of production, stopped at the end."""
    options = ["-P", "threads", "-c", str(concurrency), "--without-gossip", "--without-mingle"]
    command = ["celery", "-A", "config", "worker", *options, "-n", f"{name}@%h"]
    with _process(folder, name, command, _is_ready, environ) as made:
        yield made


@contextmanager
def web(folder: Path) -> Iterator[int]:
    """A web process; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = ["uvicorn", "config.asgi:application", "--port", str(port), "--lifespan", "off"]
    with _process(
        folder, "web", [*command, "--timeout-graceful-shutdown", "1"], lambda _: _answers(port), {}
    ):
        yield port


@contextmanager
def beat(folder: Path) -> Iterator[Worker]:
    """A beat process."""
    command = ["celery", "-A", "config", "beat", "--pidfile="]
    with _process(folder, "beat", command, lambda made: "beat_ready" in made.log.read_text(), {}) as made:
        yield made


@contextmanager
def _process(
    folder: Path, name: str, command: list[str], ready: Callable[[Worker], bool], environ: dict[str, str]
) -> Iterator[Worker]:
    log = folder / f"{name}.log"
    child = spawn(
        [sys.executable, "-m", *command],
        log=log,
        cwd=ROOT,
        environ=os.environ | {"PGAPPNAME": f"bench {name}"} | environ,
    )
    made = Worker(child=child, log=log)
    try:
        until(lambda: _lives(made) and ready(made), f"{name} is ready; see {log}", 60)
        yield made
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _lives(made: Worker) -> bool:
    if made.child.poll() is not None:
        raise RuntimeError(f"a process died:\n{made.log.read_text(errors='replace')[-3000:]}")
    return True


def _is_ready(made: Worker) -> bool:
    return "worker_ready" in made.log.read_text(errors="replace")


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def workers(folder: Path, count: int, concurrency: int, **environ: str) -> Iterator[list[Worker]]:
    """Several of them."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(worker(folder, f"worker{n}", concurrency, **environ))
            for n in range(1, count + 1)
        ]


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
