"""PostgreSQL and a broker for the benchmarks: those of the environment variables, otherwise embedded ones.

A new database is created and dropped at the end. A broker in CELERY_BROKER_URL must not be used by others.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from config.supervisor import postgres, valkey

START_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Servers:
    """`postgres_log` and `postgres_pid`: of the embedded PostgreSQL, None for another server. `folder`: for logs."""

    database_url: str
    broker_url: str
    folder: Path
    postgres_log: Path | None
    postgres_pid: int | None


@contextmanager
def servers() -> Iterator[Servers]:
    """Start the servers that the environment does not name; stop them and drop the database at the end."""
    folder = Path(tempfile.mkdtemp(prefix="rondo-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        given = os.environ.get("DATABASE_URL")
        log = None if given else folder / "postgres.log"
        admin_url, pid = (given, None) if given else stack.enter_context(_postgres(folder))
        broker_url = os.environ.get("CELERY_BROKER_URL") or stack.enter_context(_valkey(folder))
        url = stack.enter_context(database(admin_url))
        yield Servers(
            database_url=url, broker_url=broker_url, folder=folder, postgres_log=log, postgres_pid=pid
        )


@contextmanager
def _running(server: postgres.Postgres | valkey.Valkey, stop_signal: signal.Signals) -> Iterator[int]:
    process = server.spawn()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"a server did not start:\n{server.log.read_text()[-2000:]}")
            time.sleep(0.02)
        yield process.pid
    finally:
        process.send_signal(stop_signal)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[str, int]]:
    server = postgres.prepare(
        data=folder / "postgres", log=folder / "postgres.log", password=secrets.token_hex(8)
    )
    with _running(server, signal.SIGINT) as pid:
        server.make_database()
        yield server.url, pid


@contextmanager
def _valkey(folder: Path) -> Iterator[str]:
    server = valkey.prepare(data=folder / "valkey", log=folder / "valkey.log", password=secrets.token_hex(8))
    with _running(server, signal.SIGTERM):
        yield server.url


@contextmanager
def database(admin_url: str) -> Iterator[str]:
    """Create a database and yield its URL; dropped at the end."""
    name = f"rondo_bench_{secrets.token_hex(4)}"
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield urlunsplit(urlsplit(admin_url)._replace(path=f"/{name}"))
        finally:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
