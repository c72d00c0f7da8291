"""Database and broker: those of the environment variables, otherwise embedded ones."""

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
CONNECT_SECONDS = 5  # for the database of DATABASE_URL, which should be running
_LONGEST_REASON = 200


@dataclass(frozen=True, kw_only=True)
class Servers:
    """The URLs of database and broker, and the embedded servers that were started for them."""

    database_url: str
    broker_url: str
    database: tuple[postgres.Postgres, Child] | None
    broker: tuple[valkey.Valkey, Child] | None

    def wait(self) -> None:
        """Wait until the embedded servers answer. Raises SetupError, StopRequested."""
        if self.database:
            with step(f"PostgreSQL {postgres.MAJOR}"):
                _wait_until_it_answers(*self.database)
                self.database[0].make_database()
        if self.broker:
            with step("broker (Valkey)"):
                _wait_until_it_answers(*self.broker)


def start_servers(children: Children, folder: Path, keys: Keys, environ: Mapping[str, str]) -> Servers:
    """Start the servers that the environment does not name. Raises SetupError."""
    database_url, broker_url = environ.get("DATABASE_URL"), environ.get("CELERY_BROKER_URL")
    if database_url:
        _check_database(database_url)
    database = None if database_url else _postgres(children, folder, keys)
    broker = None if broker_url else _valkey(children, folder, keys)
    return Servers(
        database_url=database_url or (database[0].url if database else ""),
        broker_url=broker_url or (broker[0].url if broker else ""),
        database=database,
        broker=broker,
    )


def _check_database(url: str) -> None:
    """Connect once. The error text for an invalid URL may contain the password, so it is not shown."""
    try:
        with step("database of DATABASE_URL"):
            psycopg.connect(url, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise SetupError(f"cannot reach the database of DATABASE_URL: {reason}") from None
    except psycopg.Error:
        raise SetupError(
            "DATABASE_URL is invalid; it must be like postgresql://user:password@host:5432/name"
        ) from None


def _postgres(children: Children, folder: Path, keys: Keys) -> tuple[postgres.Postgres, Child]:
    log, data = folder / "logs" / "postgres.log", folder / "postgres"
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
    return server, child


def _valkey(children: Children, folder: Path, keys: Keys) -> tuple[valkey.Valkey, Child]:
    log = folder / "logs" / "broker.log"
    server = valkey.prepare(data=folder / "broker", log=log, password=keys.broker_password)
    child = Child(
        kind="broker", name="broker", start=server.spawn, log=log, order=StopOrder.BROKER, patience=5
    )
    children.add(child)
    return server, child


def _wait_until_it_answers(server: postgres.Postgres | valkey.Valkey, child: Child) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.answers():
        if not child.alive():
            raise SetupError(f"{child.name} did not start: {last_line(child.log)}; log: {child.log}")
        if time.monotonic() > deadline:
            raise SetupError(f"{child.name} does not answer after {START_SECONDS:.0f} s; log: {child.log}")
        signals.pause(0.02)
