"""The processes under our care: started, watched, started again when they die, stopped in order."""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from config.supervisor import signals
from config.supervisor.terminal import Tail, last_line, say

FIRST_DELAY = 0.5  # seconds before a dead child is started again; doubled each time …
LONGEST_DELAY = 15.0
STEADY_SECONDS = 30.0  # … until one lived this long
LOOK_SECONDS = 0.25
SAME_REQUEST_SECONDS = 2.0  # `timeout` signals us and our group at once, and fingers slip: one request


class StopOrder(IntEnum):
    """What is stopped first: those who bring work, those who do it, those who keep it."""

    SOURCE = 0
    WORKER = 1
    BROKER = 2
    DATABASE = 3

    @property
    def is_server(self) -> bool:
        """Whether it keeps data: such a one gets its time, however often we are asked to stop."""
        return self in (StopOrder.BROKER, StopOrder.DATABASE)


@dataclass(kw_only=True, eq=False)
class Child:
    """One process; `start` makes a new one, `patience` is how long it may take to stop (seconds)."""

    kind: str
    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    log: Path
    order: StopOrder
    stop_signal: signal.Signals = signal.SIGTERM
    patience: float = 10.0
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    delay: float = FIRST_DELAY
    tail: Tail = field(init=False)

    def __post_init__(self) -> None:
        self.tail = Tail(name=self.name, log=self.log)

    def run(self) -> None:
        self.process = self.start()
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ended(self) -> int | None:
        """The exit code of a process that has just ended, once."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.process = None
        return code

    def plan_restart(self) -> None:
        now = time.monotonic()
        if now - self.started_at >= STEADY_SECONDS:
            self.delay = FIRST_DELAY
        self.start_at = now + self.delay
        self.delay = min(self.delay * 2, LONGEST_DELAY)


class Children:
    """All of them. `changed` is called whenever a process id is new."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._all: list[Child] = []
        self._changed = changed

    def add(self, child: Child) -> None:
        self._all.append(child)
        child.run()
        self._changed()

    def pids(self, kind: str) -> list[int]:
        return [child.pid for child in self._all if child.kind == kind and child.pid is not None]

    def any_alive(self) -> bool:
        return any(child.alive() for child in self._all)

    def look(self) -> None:
        """Notice who died, start those again whose time has come, show what the logs say."""
        for child in self._all:
            child.tail.show()
            code = child.ended()
            if code is not None:
                child.plan_restart()
                wait = child.start_at - time.monotonic()
                say(f"{child.name} ended ({_how(code)}): {last_line(child.log)}")
                say(f"{child.name} starts again in {wait:.1f} s; log: {child.log}")
            if child.process is None and time.monotonic() >= child.start_at:
                child.run()
                self._changed()

    def stop(self) -> None:
        """Stop group by group; who takes too long is killed.

        A second request kills those that keep no data; servers always get their signal and their patience.
        """
        asked = _Asked()
        for order in StopOrder:
            group = [child for child in self._all if child.order is order and child.alive()]
            for child in group:
                _send(child, child.stop_signal)
            _wait_for(group, asked)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _send(child: Child, number: signal.Signals) -> None:
    if child.process is not None:
        child.process.send_signal(number)


class _Asked:
    """How often we were asked to stop: once, until a signal comes that is no echo of the first."""

    def __init__(self) -> None:
        self._first = time.monotonic()
        self.again = False

    def wait(self) -> None:
        """Sleep for one look, less when a child ends or we are asked again."""
        if signals.stop_asked(LOOK_SECONDS) and time.monotonic() - self._first >= SAME_REQUEST_SECONDS:
            self.again = True


def _wait_for(group: list[Child], asked: _Asked) -> None:
    """Wait for a group to end; kill who is late."""
    began = time.monotonic()
    killed: list[Child] = []
    while waiting := [child for child in group if child.alive()]:
        for child in waiting:
            why = _reason_to_kill(child, time.monotonic() - began, asked)
            if why and child not in killed:
                say(f"{child.name} {why}")
                _send(child, signal.SIGKILL)
                killed.append(child)
        asked.wait()


def _reason_to_kill(child: Child, seconds: float, asked: _Asked) -> str:
    """What a person reads about it, or an empty text."""
    if seconds > child.patience:
        return f"did not stop within {child.patience:.0f} s; killed"
    if asked.again and not child.order.is_server:
        return "killed at your second request"
    return ""
