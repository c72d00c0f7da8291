"""Real processes without the price of their imports: forked from one that has loaded what they need.

A worker spends a second and more on imports. One process has loaded the libraries and nothing of ours: what is forked
from it makes settings, apps and connections from its own environment, as ever. Most processes of a run have the same
settings but for bounds, which are read when they are used. With these a worker, a beat or a web process is forked from
a process for its kind, which has loaded the apps, too, and has no thread and no connection; it takes the bounds from
its own environment. The tests of `manage.py up` start everything the long way.
"""

import atexit
import multiprocessing
import os
import runpy
import select
import signal
import sys
import time
import zoneinfo
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

_libraries = multiprocessing.get_context("forkserver")
_libraries.set_forkserver_preload(["tests.warm_libraries"])

# read when they are used, so that they may differ from the process that has loaded the apps
READ_LATE = {"TEST_TOOLS_FOLDER", "OPENAI_BASE_URL", "OPENAI_API_KEY", "PYTEST_CURRENT_TEST"}
# settings of the same name that nothing keeps a copy of: a loaded process takes them over when it is forked
TAKEN_OVER = {
    "RONDO_BEAT_PING_URL",
    "RONDO_CONTEXT_TOKENS",
    "RONDO_MODEL_SILENCE_SECONDS",
    "RONDO_DELIVERY_RETRY_SECONDS",
    "RONDO_DELIVERY_SECONDS",
    "RONDO_HEARTBEAT_BROADCAST_SCOPE",
    "RONDO_HEARTBEAT_ROUTINE_REFLECTION",
    "RONDO_HEARTBEAT_SECONDS",
    "RONDO_MAINTENANCE_SECONDS",
    "RONDO_MCP",
    "RONDO_MCP_HOSTS",
    "RONDO_SCHEDULER_CRON_JOBS",
    "RONDO_STREAMS_PER_USER",
    "RONDO_SWEEP_SECONDS",
    "RONDO_TELEGRAM_URL",
    "RONDO_THROTTLE",
    "RONDO_TOOL_GRACE_SECONDS",
    "RONDO_TURNS_PER_USER",
    "RONDO_WEBHOOK_HOSTS",
    "RONDO_WORKER_LOST_SECONDS",
}


class Child(ABC):
    """A process, with the methods of `subprocess.Popen` that the tests use."""

    pid: int

    @abstractmethod
    def poll(self) -> int | None: ...

    @abstractmethod
    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(arguments: Sequence[str], environ: Mapping[str, str], usual: Mapping[str, str], log: Path) -> Child:
    """`python -m <arguments>`; faster when its settings are the `usual` ones, the same with each call.

    Arguments that begin with -c and a program run that instead.
    """
    if arguments[0] != "-c" and _settings_of(environ) == _settings_of(usual):
        return _LoadedChild(_apps_loaded(arguments[0], usual), arguments, environ, log)
    return _Child(arguments, environ, log)


def _settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in READ_LATE | TAKEN_OVER}


class _Child(Child):
    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self._process = _libraries.Process(target=_run, args=(list(arguments), dict(environ), str(log)))
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


class _LoadedChild(Child):
    def __init__(
        self, parent: Connection, arguments: Sequence[str], environ: Mapping[str, str], log: Path
    ) -> None:
        self._parent = parent
        self.pid: int = self._ask("start", list(arguments), dict(environ), str(log))

    def _ask(self, *request: Any) -> Any:
        self._parent.send(request)
        return self._parent.recv()

    def poll(self) -> int | None:
        code: int | None = self._ask("exit code", self.pid)
        return code

    def wait(self, timeout: float | None = None) -> int:
        with suppress(ProcessLookupError):  # its parent has noticed that it ended
            ended = os.pidfd_open(self.pid)
            try:
                select.select([ended], [], [], timeout)
            finally:
                os.close(ended)
        code = self.poll()
        if code is None:
            raise TimeoutExpired(str(self.pid), timeout or 0)
        return code


_loaded: dict[str, Connection] = {}


def _apps_loaded(module: str, environ: Mapping[str, str]) -> Connection:
    """The way to the process that has loaded the apps for this module, started now unless it is there."""
    if module not in _loaded:
        _loaded[module], theirs = multiprocessing.Pipe()
        _libraries.Process(target=_load_and_serve, args=(theirs, module, dict(environ))).start()
        theirs.close()
    return _loaded[module]


@atexit.register  # before multiprocessing waits for the process, which ends when nobody can ask it any more
def _close() -> None:
    while _loaded:
        _loaded.popitem()[1].close()


def _load_and_serve(requests: Connection, module: str, environ: dict[str, str]) -> None:
    """In a process for one kind: load the apps, then fork whenever asked to."""
    os.environ.clear()
    os.environ.update(environ)
    from tests import warm_apps

    warm_apps.load(module)
    forks = multiprocessing.get_context("fork")
    children: dict[int, Any] = {}
    while True:
        try:
            what, *given = requests.recv()
        except EOFError:
            return
        if what == "exit code":
            requests.send(children[given[0]].exitcode)
            continue
        child = forks.Process(target=_run_loaded, args=given, daemon=True)
        child.start()
        children[child.pid or 0] = child
        requests.send(child.pid)


def _run_loaded(arguments: list[str], environ: dict[str, str], log: str) -> None:
    """In the child of a process that has loaded the apps."""
    _begin(environ, log)
    from tests import warm_apps

    warm_apps.take_over(TAKEN_OVER)
    _run_module(arguments)


def _run(arguments: list[str], environ: dict[str, str], log: str) -> None:
    """In the child: what `start` was asked for."""
    _begin(environ, log)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        return
    _run_module(arguments)


def _begin(environ: dict[str, str], log: str) -> None:
    """A session of its own, the log and the environment."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    zoneinfo.reset_tzpath()  # as at the start of an interpreter, from the environment
    sys.path[:0] = environ.get("PYTHONPATH", "").split(os.pathsep) if environ.get("PYTHONPATH") else []


def _run_module(arguments: list[str]) -> None:
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
