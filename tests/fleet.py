"""Real worker and beat processes on the test database and broker."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests import warm

QUICK = {  # so that nobody waits long for a rescue
    "RONDO_SWEEP_SECONDS": "0.25",
    "RONDO_HEARTBEAT_SECONDS": "0.5",
    "RONDO_WORKER_LOST_SECONDS": "1",
    "RONDO_PLUGINS": "tests.plugins",
    "LOG_LEVEL": "INFO",
}


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """Watch until the condition holds, and return what it gave; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.01)


@cache
def usual_environ() -> dict[str, str]:
    """What processes inherit from this one, the same with each call."""
    import config.celery  # noqa: F401 - it sets a variable: set from the first process on, so that all are alike

    return dict(os.environ)


@dataclass(kw_only=True)
class Process:
    """One child with its log."""

    name: str
    log: Path
    child: warm.Child | subprocess.Popen[bytes]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, seconds: float = 30.0) -> None:
        """Until the log says so."""

        def said() -> bool:
            assert self.child.poll() is None or words in self.text(), (
                f"{self.name} died:\n{self.text()[-3000:]}"
            )
            return words in self.text()

        until(said, seconds, f"{self.name} says {words!r}:\n{self.text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.child.kill()
        self.child.wait(10)

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM; the exit code."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(seconds)


@dataclass(kw_only=True)
class Fleet:
    """The processes of one test; all are gone after it."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)

    def worker(self, concurrency: int = 16, *, ready: bool = True, **environ: str) -> Process:
        command = "worker", "-P", "threads", "-c", str(concurrency), "--without-gossip", "--without-mingle"
        process = self._start(
            "worker", "celery", "-A", "config", *command, "-n", f"w{len(self.processes)}@%h", **environ
        )
        if ready:
            process.wait_for("worker_ready")
        return process

    def beat(self, *, ready: bool = True, **environ: str) -> Process:
        process = self._start("beat", "config.beat", **environ)
        if ready:
            process.wait_for("beat_ready")
        return process

    def end(self) -> None:
        """Kill what is left, so that the tables can be emptied."""
        for process in self.processes:
            if process.child.poll() is None:
                with suppress(ProcessLookupError):
                    process.child.send_signal(signal.SIGCONT)
                process.kill()

    def logs(self) -> str:
        return "\n".join(f"=== {process.name}\n{process.text()[-6000:]}" for process in self.processes)

    def _start(self, kind: str, *command: str, **environ: str) -> Process:
        name = f"{kind}{len(self.processes)}"
        log = self.folder / f"{name}.log"
        log.touch()
        usual = usual_environ() | QUICK
        environ = os.environ | QUICK | {"TEST_TOOLS_FOLDER": str(self.folder)} | self.environ | environ
        child = warm.start(command, environ, usual, log)
        process = Process(name=name, log=log, child=child)
        self.processes.append(process)
        return process
