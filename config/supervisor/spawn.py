"""Start a program that dies with this process, with its output in a log file."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from config.supervisor.account import Account

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    parent = os.getpid()

    def prepare() -> None:
        # runs in the child after the change of its user, which would clear the setting
        _libc.prctl(PR_SET_PDEATHSIG, int(death_signal))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the supervisor blocks signals
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return prepare


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path,
    environ: Mapping[str, str],
    death_signal: signal.Signals = signal.SIGKILL,
    account: Account | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start `command`. Call this from the main thread only.

    The kernel sends the child `death_signal` when we die. The child runs in its own session, so a terminal's Ctrl-C
    does not reach it, and we choose the order of stopping.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(environ),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent(death_signal),  # noqa: PLW1509 - no threads here
            **(account or Account()).popen(),
        )
