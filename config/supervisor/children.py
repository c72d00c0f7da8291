"""Child processes: start them, restart them when they die, stop them in order.

Signals are handled at chosen points only, so that none arrives between starting a child and recording it.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from config.supervisor import StopRequested
from config.supervisor.terminal import Tail, last_line, say

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_WAITED = STOP | {signal.SIGCHLD}


def block_signals() -> None:
    """Block signals; from now on only `stop_requested` and `pause` notice them."""
    for number in _WAITED:
        # a signal that our parent ignores (as a shell does for background jobs) would never reach us
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)


def stop_requested(seconds: float) -> bool:
    """Sleep up to `seconds`, or until a child ends. True if a signal asked us to stop."""
    arrived = signal.sigtimedwait(_WAITED, seconds)
    return arrived is not None and arrived.si_signo in STOP


def pause(seconds: float) -> None:
    """Sleep like `stop_requested`, but raise StopRequested."""
    if stop_requested(seconds):
        raise StopRequested


FIRST_DELAY = 0.5  # seconds before a dead child is restarted; doubled with each restart
LONGEST_DELAY = 15.0
STEADY_SECONDS = 30.0  # a child that lived this long is restarted after FIRST_DELAY again
CHECK_SECONDS = 0.25  # between two checks of all children
# signals this close count as one request: `timeout` signals us and our group at once
SAME_REQUEST_SECONDS = 2.0


class StopOrder(IntEnum):
    """The order in which processes stop: those that create work, those that do it, those that store it."""

    SOURCE = 0
    WORKER = 1
    BROKER = 2
    DATABASE = 3

    @property
    def is_server(self) -> bool:
        """Whether the process stores data. Such a process gets its full time to stop, however often we are asked to
        stop.
        """
        return self in (StopOrder.BROKER, StopOrder.DATABASE)


@dataclass(kw_only=True, eq=False)
class Child:
    """A child process. `start` starts a new one; `patience`: seconds that it may take to stop."""

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
        """The exit code of a process that has ended; the next call gives None."""
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
    """All child processes. `changed` is called whenever one gets a new process id."""

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

    def check(self) -> None:
        """Report and restart children that died; show important lines of all logs."""
        for child in self._all:
            child.tail.show()
            code = child.ended()
            if code is not None:
                child.plan_restart()
                wait = child.start_at - time.monotonic()
                say(f"{child.name} ended ({_describe(code)}): {last_line(child.log)}")
                say(f"{child.name} restarts in {wait:.1f} s; log: {child.log}")
            if child.process is None and time.monotonic() >= child.start_at:
                child.run()
                self._changed()

    def stop(self) -> None:
        """Stop the children group by group (StopOrder), and kill those that take too long.

        A second request to stop, by a signal that is not part of the first one, kills all but servers, which always get
        their full time.
        """
        first, is_repeated = time.monotonic(), False
        for order in StopOrder:
            group = [child for child in self._all if child.order is order and child.alive()]
            for child in group:
                _send(child, child.stop_signal)
            began = time.monotonic()
            killed: list[Child] = []
            while waiting := [child for child in group if child.alive()]:
                for child in waiting:
                    why = _reason_to_kill(child, time.monotonic() - began, is_repeated=is_repeated)
                    if why and child not in killed:
                        say(f"{child.name} {why}")
                        _send(child, signal.SIGKILL)
                        killed.append(child)
                if stop_requested(CHECK_SECONDS) and time.monotonic() - first >= SAME_REQUEST_SECONDS:
                    is_repeated = True


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _send(child: Child, number: signal.Signals) -> None:
    if child.process is not None:
        child.process.send_signal(number)


def _reason_to_kill(child: Child, seconds: float, *, is_repeated: bool) -> str:
    """A text for the terminal, or an empty one."""
    if seconds > child.patience:
        return f"did not stop within {child.patience:.0f} s; killed"
    if is_repeated and not child.order.is_server:
        return "killed at your second request"
    return ""
