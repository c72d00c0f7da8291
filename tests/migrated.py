"""A data folder of PostgreSQL that holds the migrated database: made once, copied for each run of the tests.

It lies beside the installed packages under a name made of everything it depends on, so that checkouts which share
the packages share it too.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from config.supervisor import postgres, valkey

ROOT = Path(__file__).resolve().parent.parent
PARENT = Path(sys.prefix if os.access(sys.prefix, os.W_OK) else tempfile.gettempdir())
SHELF = PARENT / f"rondo-test-databases-{os.geteuid()}"
UNUSED_SECONDS = 24 * 3600  # a folder is removed when nobody took a copy for so long
PASSWORD = "test"
# A crash of the machine may cost a test its data; a kill of the server does not.
SETTINGS = "fsync = off\nfull_page_writes = off\n"


def template() -> Path:
    """The migrated data folder, made now unless it is there."""
    folder = SHELF / _key()
    if not folder.is_dir():
        _make(folder)
    os.utime(folder)
    return folder


def start_copy(folder: Path) -> tuple[postgres.Postgres, subprocess.Popen[bytes]]:
    """Start a server on a copy of the migrated data folder."""
    _copy(template(), folder / "postgres")
    return _start(folder)


def wait_until_ready(server: postgres.Postgres | valkey.Valkey, process: subprocess.Popen[bytes]) -> None:
    """Until it accepts connections. pytest.UsageError with its log when it does not."""
    deadline = time.monotonic() + 30
    while not server.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise pytest.UsageError(
                f"a server for the tests did not start:\n{server.log.read_text()[-2000:]}"
            )
        time.sleep(0.01)


def _key() -> str:
    """A name for what the migrations of this checkout, and of the installed packages, make for this account."""
    found = hashlib.sha256(f"{postgres.MAJOR} {SETTINGS}".encode())
    for path in sorted(_sources()):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _sources() -> Iterable[Path]:
    yield ROOT / "requirements.lock"
    yield ROOT / "config" / "settings.py"  # the list of apps
    for app in ("sessions_app", "automations"):
        for folder in ("migrations", "models"):  # permissions follow the models
            yield from (ROOT / app / folder).glob("*.py")


def _start(folder: Path) -> tuple[postgres.Postgres, subprocess.Popen[bytes]]:
    server = postgres.prepare(data=folder / "postgres", log=folder / "postgres.log", password=PASSWORD)
    process = server.spawn()
    wait_until_ready(server, process)
    return server, process


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rondo-migrate-") as name:
        own = Path(name)
        server, process = _start(own)
        try:
            server.make_database()
            _migrate(server.url)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        with (server.data / "postgresql.auto.conf").open("a") as file:
            file.write(SETTINGS)
        _put(server.data, folder)


def _migrate(url: str) -> None:
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    environ = os.environ | {"DATABASE_URL": url, "CELERY_BROKER_URL": "memory://"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise pytest.UsageError(f"the test database could not be migrated:\n{done.stderr[-2000:]}")


def _put(data: Path, folder: Path) -> None:
    """Place the folder on the shelf; of several processes that made it at once, the first one wins."""
    SHELF.mkdir(mode=0o700, exist_ok=True)
    for other in SHELF.iterdir():
        if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    own = folder.with_name(f"{folder.name}.{os.getpid()}")
    _copy(data, own)
    with suppress(OSError):
        own.rename(folder)
    shutil.rmtree(own, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """With owners and rights, which a server insists on."""
    subprocess.run(["cp", "--archive", "--reflink=auto", source, target], check=True)
