"""Database and broker: the ones named by the environment, else the embedded ones."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.supervisor import postgres, signals, valkey
from config.supervisor.children import Child, Children, StopOrder
from config.supervisor.datadir import Keys
from config.supervisor.errors import SetupError
from config.supervisor.terminal import last_line, step

START_SECONDS = 60.0  # recovery after a crash replays the log first


@dataclass(frozen=True, kw_only=True)
class Servers:
    database_url: str
    broker_url: str


def start(children: Children, folder: Path, keys: Keys, environ: Mapping[str, str]) -> Servers:
    """Start what the environment does not name, wait until it answers. Raises SetupError, StopRequested."""
    database_url = environ.get("DATABASE_URL") or _postgres(children, folder, keys)
    broker_url = environ.get("CELERY_BROKER_URL") or _valkey(children, folder, keys)
    return Servers(database_url=database_url, broker_url=broker_url)


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
