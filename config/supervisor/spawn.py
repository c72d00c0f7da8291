"""Start programs that die with this process, as the system account of the embedded servers or as our own.

PostgreSQL refuses to run as root. If `up` runs as root, the servers run as an unprivileged account, which may have no
access to the folders around the data and the programs: see `OWN_FOLDER` for the data; programs are copied.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.supervisor import SetupError

SHARED = Path("/var/lib/rondo")  # copies of programs, readable by everyone; made only when started by root

# A server is started inside its data folder and uses this path for it: the kernel then checks no permissions of the
# folders above, to which the server's account may have no access.
OWN_FOLDER = "/proc/self/cwd"


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account to run a program as; without uid, the one of this process."""

    uid: int | None = None
    gid: int | None = None

    def popen(self) -> dict[str, Any]:
        """Arguments for subprocess.Popen that switch to this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def home(self) -> dict[str, str]:
        """The variable of its home folder: libraries look for files there, and fail where they may not look."""
        return {} if self.uid is None else {"HOME": "/nonexistent"}

    def make_folder(self, folder: Path) -> None:
        """Create `folder` if it is missing, with access for this account only."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.uid is not None and self.gid is not None:
            os.chown(folder, self.uid, self.gid)


def account_for(data: Path) -> Account:
    """If we are root: the owner of `data`, or an unprivileged account. Otherwise our own account."""
    if os.geteuid() != 0:
        return Account()
    if data.is_dir() and (owner := data.stat()).st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    return Account(uid=65534, gid=65534)


def account_for_fleet(data: Path, environ: Mapping[str, str], cwd: Path) -> Account:
    """The account for web, workers and beats: the servers' account if it can load our code, else our own."""
    account = account_for(data)
    if account.uid is None:
        return account
    command = [sys.executable, "-c", "import django; django.setup()"]
    settings = {"DJANGO_SETTINGS_MODULE": "config.settings", **environ, **account.home()}
    try:
        done = subprocess.run(
            command, cwd=cwd, env=settings, capture_output=True, timeout=60, check=False, **account.popen()
        )
    except (OSError, subprocess.SubprocessError):
        return Account()
    return account if done.returncode == 0 else Account()


@dataclass(frozen=True, kw_only=True)
class EmbeddedServer:
    """A server that `up` runs as this account; `data` is its folder, `log` its log file."""

    data: Path
    log: Path
    password: str
    port: int
    account: Account
    program: Path


def packaged_program(
    package: str, program: str, parts: tuple[str, ...], account: Account, variable: str
) -> Path:
    """`runnable_program` of a Python package. SetupError, also if it is missing: `variable` names another server."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        name = package.replace("_", "-")
        raise SetupError(f"the package {name} is not installed; install it, or set {variable}")
    site, label = Path(spec.origin).parent.parent, f"{package}-{importlib.metadata.version(package)}"
    return runnable_program(program, site=site, parts=parts, label=label, account=account)


def runnable_program(
    program: str, *, site: Path, parts: tuple[str, ...], label: str, account: Account
) -> Path:
    """The path of `program` (relative to `site`) at which `account` can run it.

    If the account cannot run it there, `parts` (the files and folders below `site` that the program needs) are copied
    to SHARED, in a folder named `label` (their version). The program is run to find out, because permissions, mounts
    and ACLs all matter. Raises SetupError.
    """
    if _runs(site / program, account):
        return site / program
    copy = SHARED / label
    if _runs(copy / program, account):
        return copy / program
    try:
        _copy(site, parts, copy)
    except OSError as error:
        raise SetupError(f"cannot copy {label} to {SHARED}: {error}; run `up` as an ordinary user") from None
    if not _runs(copy / program, account):
        raise SetupError(f"account {account.uid} cannot run {copy / program}; run `up` as an ordinary user")
    return copy / program


def _runs(program: Path, account: Account) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"], cwd="/", capture_output=True, timeout=20, check=False, **account.popen()
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _copy(site: Path, parts: tuple[str, ...], copy: Path) -> None:
    fresh = copy.with_name(f".{copy.name}.{os.getpid()}")
    for part in parts:
        source, target = site / part, fresh / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    for path in (copy.parent, fresh, *fresh.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
    shutil.rmtree(copy, ignore_errors=True)
    fresh.rename(copy)


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


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
