"""Database and broker: the ones named by the environment, else the embedded ones."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from config.supervisor import postgres, signals, valkey
from config.supervisor.children import Child, Children, StopOrder
from config.supervisor.datadir import Keys
from config.supervisor.errors import SetupError
from config.supervisor.terminal import last_line, step

START_SECONDS = 60.0  # recovery after a crash replays the log first
CONNECT_SECONDS = 5  # for a database of yours; it is expected to run
_LONGEST_REASON = 200


@dataclass(frozen=True, kw_only=True)
class Servers:
    database_url: str
    broker_url: str


def start(children: Children, folder: Path, keys: Keys, environ: Mapping[str, str]) -> Servers:
    """Start what the environment does not name, wait until it answers. Raises SetupError, StopRequested."""
    database_url = environ.get("DATABASE_URL", "")
    if database_url:
        _check_database(database_url)
    else:
        database_url = _postgres(children, folder, keys)
    broker_url = environ.get("CELERY_BROKER_URL") or _valkey(children, folder, keys)
    return Servers(database_url=database_url, broker_url=broker_url)


def _check_database(url: str) -> None:
    """Before anything is started for it. Texts about addresses that cannot be read may hold a password."""
    try:
        with step("database of DATABASE_URL"):
            psycopg.connect(url, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise SetupError(f"cannot reach the database of DATABASE_URL: {reason}") from None
    except psycopg.Error:
        raise SetupError(
            "DATABASE_URL cannot be read; it must be like postgresql://user:password@host:5432/name"
        ) from None


def _postgres(children: Children, folder: Path, keys: Keys) -> str:
    log = folder / "logs" / "postgres.log"
    with step(f"PostgreSQL {postgres.MAJOR}"):
        data = folder / "postgres"
        postgres.wait_for_predecessor(data)
        server = postgres.prepare(data=data, log=log, password=keys.database_password)
        child = Child(
            kind="postgres",
            name="postgres",
            start=server.spawn,
            log=log,
            order=StopOrder.DATABASE,
            stop_signal=signal.SIGINT,  # fast shutdown
            patience=15,
        )
        children.add(child)
        _wait_until_it_answers(server, child)
        server.make_database()
    return server.url


def _valkey(children: Children, folder: Path, keys: Keys) -> str:
    log = folder / "logs" / "broker.log"
    with step("broker (Valkey)"):
        server = valkey.prepare(data=folder / "broker", log=log, password=keys.broker_password)
        child = Child(
            kind="broker", name="broker", start=server.spawn, log=log, order=StopOrder.BROKER, patience=5
        )
        children.add(child)
        _wait_until_it_answers(server, child)
    return server.url


def _wait_until_it_answers(server: postgres.Postgres | valkey.Valkey, child: Child) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.answers():
        if not child.alive():
            raise SetupError(f"{child.name} did not start: {last_line(child.log)}; log: {child.log}")
        if time.monotonic() > deadline:
            raise SetupError(f"{child.name} does not answer after {START_SECONDS:.0f} s; log: {child.log}")
        signals.pause(0.02)
