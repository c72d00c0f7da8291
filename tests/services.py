"""Real PostgreSQL and Valkey for the tests, started before Django reads its settings.

A plugin (`-p tests.services`). `DATABASE_URL` and `CELERY_BROKER_URL` of the environment are used instead
when they are set. Else the database is a copy of the data folder that `tests.migrated` keeps; only a server that
is named gets a test database from Django. `os.environ` names the database while tests that asked for one run, so
that real worker and beat processes started with `os.environ` use the same one.
"""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from config.supervisor import valkey
from tests import migrated

EMBEDDED = "RONDO_TEST_POSTGRES_IS_EMBEDDED"

_started: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []
_folders: list[Path] = []


def _start_missing(*, distributes: bool) -> None:
    """Each process of pytest-xdist has a PostgreSQL of its own: nothing open in one hides rows in another."""
    if not os.environ.get("DATABASE_URL") or os.environ.get(EMBEDDED):
        os.environ[EMBEDDED] = "1"
        os.environ.pop("DATABASE_LOCK_URL", None)
        os.environ["DATABASE_URL"] = _no_postgres() if distributes else _start_postgres()
    if not os.environ.get("CELERY_BROKER_URL"):
        os.environ["CELERY_BROKER_URL"] = _start_valkey()
    elif "PYTEST_XDIST_WORKER" not in os.environ:
        _refuse_used_queues(os.environ["CELERY_BROKER_URL"], range(1, 5) if distributes else ())


def _refuse_used_queues(url: str, databases: Iterable[int]) -> None:
    """The tests empty the database of a broker that was named, so it must hold nothing. UsageError."""
    import redis

    for each in [with_database(url, str(number)) for number in databases] or [url]:
        if each.startswith("redis") and redis.Redis.from_url(each).dbsize():
            place = urlsplit(each)
            raise pytest.UsageError(
                f"CELERY_BROKER_URL: the tests would empty the database {place.path[1:] or 0} of"
                f" {place.hostname}:{place.port or 6379}, which holds keys; name another one or empty it"
            )


def _no_postgres() -> str:
    """The process that hands out the tests only makes what the others copy."""
    migrated.template()
    return "postgresql://nobody@127.0.0.1:1/none"


def _start_postgres() -> str:
    server, process = migrated.start_copy(_folder())
    _started.append((process, signal.SIGINT))
    return server.url


def _start_valkey() -> str:
    folder = _folder()
    server = valkey.prepare(data=folder / "valkey", log=folder / "valkey.log", password="test")
    process = server.spawn()
    _started.append((process, signal.SIGTERM))
    migrated.wait_until_ready(server, process)
    return server.url


def _folder() -> Path:
    _folders.append(Path(tempfile.mkdtemp(prefix="rondo-tests-")))
    return _folders[-1]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Runs before pytest-django loads the settings; processes of pytest-xdist inherit what was set."""
    os.environ.setdefault("SECRET_KEY", "only-for-tests")
    os.environ.setdefault("HTTPS", "0")
    os.environ.setdefault("RONDO_MODEL", "offline")
    os.environ.setdefault("RONDO_MODELS", "openai-chat:*")
    os.environ.setdefault("RONDO_TELEGRAM_URL", "http://127.0.0.1:1")  # no test asks Telegram itself
    os.environ.setdefault("RONDO_THROTTLE", "1000000/s")  # counted as everywhere, and never reached
    processes = getattr(early_config.known_args_namespace, "numprocesses", None)
    _start_missing(distributes=bool(processes) and "PYTEST_XDIST_WORKER" not in os.environ)
    _use_own_queues()


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
def pointing_at(name: str) -> Iterator[None]:
    """Other connections and processes use the database of this name."""
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
