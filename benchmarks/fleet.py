"""Starts processes of Rondo, and inspects their queues."""

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
    """Wait until the condition holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timeout after {seconds:.0f} s: {what}")
        time.sleep(every)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A child process and its log."""

    child: subprocess.Popen[bytes]
    log: Path

    def signal(self, number: int) -> None:
        self.child.send_signal(number)


@contextmanager
def worker(folder: Path, name: str, concurrency: int, **environ: str) -> Iterator[Worker]:
    """A worker with production settings; stopped at the end."""
    options = ["-P", "threads", "-c", str(concurrency), "--without-gossip", "--without-mingle"]
    command = ["celery", "-A", "config", "worker", *options, "-n", f"{name}@%h"]
    with _process(folder, name, command, _is_ready, environ) as process:
        yield process


@contextmanager
def web(folder: Path, **environ: str) -> Iterator[int]:
    """A web process; yields its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = ["config.web", "--port", str(port), "--timeout-graceful-shutdown", "1"]
    with _process(folder, "web", command, lambda _: _answers(port), environ):
        yield port


@contextmanager
def beat(folder: Path, **environ: str) -> Iterator[Worker]:
    """A beat process."""

    def is_ready(process: Worker) -> bool:
        return "beat_ready" in process.log.read_text()

    with _process(folder, "beat", ["config.beat"], is_ready, environ) as process:
        yield process


@contextmanager
def _process(
    folder: Path, name: str, command: list[str], ready: Callable[[Worker], bool], environ: dict[str, str]
) -> Iterator[Worker]:
    log = folder / f"{name}.log"
    child = spawn(
        [sys.executable, "-m", *command],
        log=log,
        cwd=ROOT,
        environ=os.environ | {"PGAPPNAME": f"bench {name}", "LOG_LEVEL": "INFO"} | environ,
    )
    process = Worker(child=child, log=log)
    try:
        until(lambda: _check_alive(process) and ready(process), f"{name} is ready; see {log}", 60)
        yield process
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _check_alive(process: Worker) -> bool:
    if process.child.poll() is not None:
        raise RuntimeError(f"a process died:\n{process.log.read_text(errors='replace')[-3000:]}")
    return True


def _is_ready(process: Worker) -> bool:
    return "worker_ready" in process.log.read_text(errors="replace")


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def workers(folder: Path, count: int, concurrency: int, **environ: str) -> Iterator[list[Worker]]:
    """Several workers."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(worker(folder, f"worker{n}", concurrency, **environ))
            for n in range(1, count + 1)
        ]


def waiting_hints() -> int:
    """Number of messages in all our queues."""
    from django.conf import settings

    from config.celery import app as current_app

    with current_app.connection_for_read() as connection:
        channel = connection.default_channel
        return sum(_size(channel, name) for name in settings.ALL_QUEUES)


def _size(channel: Any, name: str) -> int:
    if hasattr(channel, "_size"):  # Redis: declaring the queue would take three round trips
        return int(channel._size(name))  # noqa: SLF001
    return int(channel.queue_declare(name, passive=True).message_count)


def purge() -> None:
    """Drop all waiting hints."""
    from django.conf import settings

    from config.celery import app as current_app
    from sessions_app import hints

    hints.flush_hints(30.0)
    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        for name in settings.ALL_QUEUES:
            channel.queue_purge(name)
