"""`manage.py up` as a real process, for tests."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fleet import until

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 90.0
OURS = (
    "DATABASE_URL",
    "DATABASE_LOCK_URL",
    "CELERY_BROKER_URL",
    "SECRET_KEY",
    "HTTPS",
    "TURN_QUEUES",
    "DJANGO_SETTINGS_MODULE",
)


def free_port() -> int:
    """A port that is free, and that nobody gets by chance: the system chooses ports for others from 32768 on."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def clean_environ() -> dict[str, str]:
    """The environment of someone who configured nothing."""
    return {name: value for name, value in os.environ.items() if name not in OURS}


def run(
    *command: str, cwd: Path | str | None = ROOT, timeout: float = 100, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, by default in the checkout."""
    told = {"capture_output": True, "text": True} | more
    return subprocess.run(command, cwd=cwd, timeout=timeout, check=check, **told)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def all_pids(connection: Mapping[str, Any]) -> list[int]:
    pids = connection["pids"]
    return [*pids["web"], *pids["worker"], *pids["beat"], pids["postgres"], pids["broker"]]


@dataclass(kw_only=True)
class Up:
    """One `manage.py up` on a data folder; may be started again after it ended."""

    folder: Path
    data: Path = Path()
    port: int = field(default_factory=free_port)
    program: Sequence[str] = (sys.executable,)
    script: Sequence[str] = (str(ROOT / "manage.py"),)
    cwd: Path = ROOT
    has_default_data: bool = False  # `data` is then only where it is expected
    popen: Mapping[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=clean_environ)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if self.data == Path():
            self.data = self.folder / "data"

    @property
    def output(self) -> str:
        return (self.folder / "up.log").read_text()

    def _arguments(self) -> list[str]:
        folder = [] if self.has_default_data else ["--data-dir", str(self.data)]
        return ["up", "--port", str(self.port), *folder, "--concurrency", "4"]

    def start(self, *flags: str) -> None:
        with (self.folder / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.program, *self.script, *self._arguments(), *flags],
                cwd=self.cwd,
                env=self.environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                **self.popen,
            )

    def wait_ready(self) -> None:
        def ready_or_dead() -> bool:
            return "Ready: " in self.output or self.process is None or self.process.poll() is not None

        try:
            until(ready_or_dead, READY_SECONDS)
        except AssertionError:
            raise AssertionError(self.output) from None
        assert "Ready: " in self.output, self.output

    def refused(self, *flags: str) -> str:
        """Run it where it cannot start; its one line of complaint."""
        self.start(*flags)
        assert self.process is not None
        assert self.process.wait(30) == 1, self.output
        complaints = [line for line in self.output.splitlines() if line.startswith("rondo: ")]
        assert len(complaints) == 1, self.output
        assert "Traceback" not in self.output
        return complaints[0]

    def connection(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.data / "connection.json").read_text())
        return read

    @property
    def url(self) -> str:
        return str(self.connection()["url"])

    @property
    def token(self) -> str:
        return str(self.connection()["token"])

    @property
    def database_url(self) -> str:
        return str(self.connection()["database_url"])

    @property
    def headers(self) -> dict[str, str]:
        """None beyond those of every request."""
        return {}

    def pids(self, kind: str) -> list[int]:
        """The processes of one kind, such as `worker`."""
        found = self.connection()["pids"][kind]
        return found if isinstance(found, list) else [found]

    def get(self, path: str) -> int:
        """HTTP status of a GET with the token."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Token {self.token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send the signal; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(40)

    @contextmanager
    def running(self, *flags: str) -> Iterator[Up]:
        """Started and ready, and ended afterwards."""
        try:
            self.start(*flags)
            self.wait_ready()
            yield self
        finally:
            self.end()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
