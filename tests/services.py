"""Real PostgreSQL and Valkey for the tests, started before Django reads its settings.

A plugin (`-p tests.services`). `DATABASE_URL` and `CELERY_BROKER_URL` of the environment are used instead
when they are set. Django's test database is made in that server; `os.environ` names it while tests that
asked for a database run, so that real worker and beat processes started with `os.environ` use the same one.
"""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from config.supervisor import postgres, valkey

EMBEDDED = "RONDO_TEST_POSTGRES_IS_EMBEDDED"

_started: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []
_folders: list[Path] = []


def _wait(server: postgres.Postgres | valkey.Valkey, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not server.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise pytest.UsageError(
                f"a server for the tests did not start:\n{server.log.read_text()[-2000:]}"
            )
        time.sleep(0.02)


def _start_postgres(folder: Path) -> str:
    server = postgres.prepare(data=folder / "postgres", log=folder / "postgres.log", password="test")
    process = server.spawn()
    _started.append((process, signal.SIGINT))
    _wait(server, process)
    server.make_database()
    return server.url


def _start_valkey(folder: Path) -> str:
    server = valkey.prepare(data=folder / "valkey", log=folder / "valkey.log", password="test")
    process = server.spawn()
    _started.append((process, signal.SIGTERM))
    _wait(server, process)
    return server.url


def _start_missing() -> None:
    if os.environ.get("DATABASE_URL") and os.environ.get("CELERY_BROKER_URL"):
        return
    folder = Path(tempfile.mkdtemp(prefix="rondo-tests-"))
    _folders.append(folder)
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = _start_postgres(folder)
        os.environ[EMBEDDED] = "1"
        os.environ.pop("DATABASE_LOCK_URL", None)
    if not os.environ.get("CELERY_BROKER_URL"):
        os.environ["CELERY_BROKER_URL"] = _start_valkey(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Runs before pytest-django loads the settings; processes of pytest-xdist inherit what was set."""
    os.environ.setdefault("SECRET_KEY", "only-for-tests")
    os.environ.setdefault("HTTPS", "0")
    os.environ.setdefault("RONDO_MODEL", "offline")
    os.environ.setdefault("RONDO_THROTTLE", "1000000/s")  # counted as everywhere, and never reached
    _start_missing()
    _use_own_queues()


def pytest_configure(config: pytest.Config) -> None:
    """The embedded server goes as a whole; dropping the database first would only trip over open connections."""
    if os.environ.get(EMBEDDED):
        config.option.reuse_db = True


def _use_own_queues() -> None:
    """Processes of pytest-xdist share the broker, each with a database number of its own."""
    url, process = os.environ["CELERY_BROKER_URL"], os.environ.get("PYTEST_XDIST_WORKER", "")
    if process and url.startswith("redis"):
        os.environ["CELERY_BROKER_URL"] = with_database(url, str(int(process.removeprefix("gw")) + 1))


@atexit.register  # also when pytest gives up before it has begun
def _stop_started() -> None:
    while _started:
        process, stop_signal = _started.pop()
        process.send_signal(stop_signal)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)


def with_database(url: str, name: str) -> str:
    """The address `url` with another database name."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def _pointing_at(name: str) -> Iterator[None]:
    from django.conf import settings

    saved = {key: os.environ.get(key) for key in ("DATABASE_URL", "DATABASE_LOCK_URL")}
    saved_setting = settings.DATABASE_LOCK_URL
    os.environ["DATABASE_URL"] = with_database(os.environ["DATABASE_URL"], name)
    settings.DATABASE_LOCK_URL = os.environ["DATABASE_LOCK_URL"] = with_database(saved_setting, name)
    try:
        yield
    finally:
        settings.DATABASE_LOCK_URL = saved_setting
        for key, value in saved.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


@pytest.fixture(scope="session", autouse=True)
def _test_database_for_processes(django_db_modify_db_settings: None) -> Iterator[None]:
    """Lock connections and child processes use the test database too."""
    from django.db import connections

    settings_dict = connections["default"].settings_dict
    name = settings_dict["TEST"]["NAME"] or f"test_{settings_dict['NAME']}"
    with _pointing_at(name):
        yield
