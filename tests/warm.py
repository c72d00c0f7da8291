"""Real processes without the price of their imports: forked from one that has loaded the libraries, nothing of ours.

A worker spends most of a second on importing others' code. Settings, apps and connections are made after the fork from
the child's own environment, as ever. The tests of `manage.py up` start everything the long way.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import time
import zoneinfo
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.warm_libraries"])


class Child:
    """A forked process, with what the tests ask of a `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self._process = _forks.Process(target=_run, args=(list(arguments), dict(environ), str(log)))
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired(str(self._process), timeout or 0)
        return code

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(arguments: list[str], environ: dict[str, str], log: str) -> None:
    """In the child: `python -m <arguments>`, in a session of its own."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    zoneinfo.reset_tzpath()  # as at the start of an interpreter, from the environment
    sys.path[:0] = environ.get("PYTHONPATH", "").split(os.pathsep) if environ.get("PYTHONPATH") else []
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
