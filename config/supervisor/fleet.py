"""The processes of `up`: database and broker unless the environment names some, then web, workers and beats."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from config.installation import COMMAND, ROOT
from config.supervisor import SetupError, postgres, valkey
from config.supervisor.children import Child, Children, StopOrder, pause
from config.supervisor.datadir import Keys
from config.supervisor.spawn import Account, account_for_fleet, spawn
from config.supervisor.terminal import last_line, say, step

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - the address for a browser on this machine
START_SECONDS = 60.0  # recovery after a crash replays the log first
CONNECT_SECONDS = 5  # for the database of DATABASE_URL, which should be running
_LONGEST_REASON = 200


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The flags of `manage.py up`."""

    host: str
    port: int
    data_dir: Path
    workers: int
    concurrency: int
    beats: int

    @property
    def serves_loopback(self) -> bool:
        """Whether the web process can be reached by a loopback address."""
        return self.host in LOOPBACK or self.host in WILDCARDS

    @property
    def url(self) -> str:
        """The URL of the web process on this machine."""
        host = WILDCARDS.get(self.host, f"[{self.host}]" if ":" in self.host else self.host)
        return f"http://{host}:{self.port}"


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
        pause(0.02)


ADMIN_USER = "admin"
WORKER_PATIENCE = 20.0  # seconds for a worker to hand back its turns
# `bootstrap` has just run Django's checks; Celery would run them again, and load all URLs for them.
_CELERY = ["celery", "-A", "config", "--skip-checks"]
PORTS_OF_ALL = 1024  # the first port that needs no rights
WEB_GRACE = 3  # as in config/web.py: seconds that open event streams have to end


def child_environment(options: UpOptions, keys: Keys, servers: Servers) -> dict[str, str]:
    """The environment of the children: ours, with defaults that `up` provides."""
    environ = dict(os.environ)
    if not environ.get("DATABASE_URL"):
        environ.pop("DATABASE_LOCK_URL", None)  # it would name another database
    environ["DATABASE_URL"] = servers.database_url
    environ["CELERY_BROKER_URL"] = servers.broker_url
    environ["PYTHONUNBUFFERED"] = "1"
    # by default uvicorn trusts X-Forwarded-For from this machine
    environ.setdefault("FORWARDED_ALLOW_IPS", "")
    provided = {
        "SECRET_KEY": keys.secret_key,
        "HTTPS": "0",
        "ALLOWED_HOSTS": _allowed_hosts(options.host),
        "RONDO_THIS_MACHINE": str(int(options.host in LOOPBACK)),
    }
    return {**environ, **{name: value for name, value in provided.items() if not environ.get(name)}}


def _allowed_hosts(host: str) -> str:
    names = ["localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host]
    if host in WILDCARDS:  # other machines may use any name for this one
        names = ["*", socket.gethostname()]
    return ",".join(names)


def run_bootstrap(folder: Path, environ: Mapping[str, str], keys: Keys) -> dict[str, Any]:
    """Migrate the database and create the demo data with `manage.py bootstrap`.

    Returns `{"token": str, "admin_password_valid": bool, "admin_is_new": bool, "sign_in_path": str | None}`. Raises
    SetupError, StopRequested.
    """
    secrets = {
        "RONDO_ADMIN_USER": ADMIN_USER,
        "RONDO_ADMIN_PASSWORD": keys.admin_password,
        "RONDO_API_TOKEN": keys.api_token,
    }
    answer = folder / "bootstrap.json"
    answer.unlink(missing_ok=True)
    descriptor = os.open(answer, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    try:
        command = ["bootstrap", "--output", str(answer)]
        _run_step(command, folder / "logs" / "bootstrap.log", {**environ, **secrets})
        made: dict[str, Any] = json.loads(answer.read_text())
    finally:
        answer.unlink(missing_ok=True)
    return made


def _run_step(arguments: list[str], log: Path, environ: Mapping[str, str]) -> None:
    process = spawn([sys.executable, ROOT / "manage.py", *arguments], log=log, cwd=ROOT, environ=environ)
    try:
        while process.poll() is None:
            pause(1)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode != 0:
        raise SetupError(f"`{COMMAND} {arguments[0]}` failed: {last_line(log)}; log: {log}")


def start_fleet(children: Children, folder: Path, options: UpOptions, environ: Mapping[str, str]) -> None:
    """Start web, workers and beats."""
    account = account_for_fleet(folder / "postgres", environ, ROOT)
    if os.geteuid() == 0 and account.uid is None:
        say(f"Web, workers and beats run as root: no other account can run {sys.executable} with this code")
    for kind, child_name, command, more, order, patience in _plan(options):
        log = folder / "logs" / f"{child_name}.log"
        is_bound = child_name == "web" and options.port < PORTS_OF_ALL  # root alone may listen there
        own = Account() if is_bound else account
        named = {**environ, **more, **own.home(), "PGAPPNAME": f"rondo {child_name}"}
        children.add(
            Child(
                kind=kind,
                name=child_name,
                start=partial(
                    spawn, [sys.executable, "-m", *command], log=log, cwd=ROOT, environ=named, account=own
                ),
                log=log,
                order=order,
                patience=patience,
            )
        )


def worker_command(name: str, concurrency: int) -> list[str]:
    """The words after `python -m` that run a worker."""
    pool = ["-P", "threads", "-c", str(concurrency)]
    return [*_CELERY, "worker", *pool, "-n", f"{name}@%h", "--without-gossip", "--without-mingle"]


def _plan(options: UpOptions) -> Iterator[tuple[str, str, list[str], dict[str, str], StopOrder, float]]:
    """Yield kind, name, command, own variables, order and patience of each process."""
    web = ["config.web", "--host", options.host, "--port", str(options.port)]
    yield "web", "web", web, {}, StopOrder.SOURCE, WEB_GRACE + 3.0
    for n in range(1, options.workers + 1):
        for queues in ("turns", "auto"):  # so that automations take no place of a person's turn
            name = f"worker{n}-{queues}"
            command = worker_command(name, options.concurrency)
            yield "worker", name, command, {"TURN_QUEUES": queues}, StopOrder.WORKER, WORKER_PATIENCE
    for n in range(1, options.beats + 1):
        yield "beat", f"beat{n}", ["config.beat"], {}, StopOrder.SOURCE, 5.0
