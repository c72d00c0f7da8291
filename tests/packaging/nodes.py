"""Machines of docs/deploy.md, simulated on this one: each with its folder, host name, port and processes."""

import itertools
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from config.supervisor import postgres, valkey
from tests.fleet import until
from tests.migrated import wait_until_ready
from tests.packaging.page import Machine, blocks, clean, exec_start
from tests.up import ROOT, free_port, run

PATH = f"{os.defpath}:/usr/sbin:/sbin"  # where Debian has rabbitmqctl
STOP_SECONDS = 30  # as systemd waits for a worker
HTTPS = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7", "Host": "rondo.example"}
# the checkout as another version
_OTHER_VERSION = (
    "import sys; sys.path.insert(0, {root!r}); import config.installation as here; here.VERSION = {version!r};"
    " import manage; sys.exit(manage.main())"
)


def works(*command: str) -> bool:
    """Whether this machine has the command, and lets us use it."""
    if shutil.which(command[0], path=PATH) is None:
        return False
    return run(*command, env=clean() | {"PATH": PATH}, cwd="/").returncode == 0


@dataclass(kw_only=True)
class Node:
    """A machine with some of the page's units."""

    name: str
    machine: Machine
    units: tuple[str, ...]
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.machine.folder

    def install(self, version: str) -> None:
        """What `pip install` of the page makes. That the wheel installs is shown by test_wheel.py."""
        program = self.folder / version / "bin" / "rondo"
        program.parent.mkdir(parents=True)
        code = _OTHER_VERSION.format(root=str(ROOT), version=version)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c {shlex.quote(code)} "$@"\n')
        program.chmod(0o755)

    def follow(self, block: str, **environ: str) -> str:
        """Follow a block of the page line by line; `systemctl` starts and stops this machine's units."""
        told = []
        for line in block.splitlines():
            words = line.split()
            if words[:1] == ["cp"]:
                continue  # this machine has no right to; units are read from deploy/
            if words[:1] != ["systemctl"]:
                told.append(self.machine.run(line, **environ))
                continue
            for unit in self.units:
                if unit in words and "restart" in words:
                    self.stop(unit)
                if unit in words and {"restart", "enable", "start"} & set(words):
                    self.start(unit)
        return "".join(told)

    def start(self, unit: str) -> None:
        """What systemd does with a unit."""
        name, at, instance = unit.partition("@")
        words = [self.machine.text(word) for word in exec_start(f"{name}{at}.service", instance)]
        words = [word.replace("8000", str(self.port)) for word in words]
        if works("unshare", "--uts", "true"):  # without the right to it, all machines have one name
            named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name]
            words = [*named, *words]
        with (self.folder / f"{unit}.log").open("ab") as log:
            self.running[unit] = subprocess.Popen(
                words, cwd="/", env=clean() | self.machine.settings() | {"HOME": str(self.folder)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def stop(self, unit: str) -> None:
        """SIGTERM, and wait for its clean end."""
        process = self.running.pop(unit)
        process.terminate()
        # uvicorn ends itself with the signal that it got
        assert process.wait(STOP_SECONDS) in {0, -signal.SIGTERM}, self.logs()

    def kill(self) -> None:
        """The machine fails: all of its processes at once."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()

    def logs(self) -> str:
        files = self.folder.glob("*.log")
        return "\n".join(f"== {self.name} {path.name}\n{path.read_text()[-1500:]}" for path in files)


@dataclass(kw_only=True)
class Fleet:
    """The machines, and how a client reaches them: through a balancer that goes from one to the next."""

    nodes: list[Node]
    token: str = ""
    _turn: Iterator[int] = field(default_factory=itertools.count)

    @property
    def database_url(self) -> str:
        return self.nodes[0].machine.settings()["DATABASE_URL"]

    @property
    def headers(self) -> dict[str, str]:
        """Those of the proxy."""
        return HTTPS

    @property
    def url(self) -> str:
        """The next web process."""
        web = [node for node in self.nodes if "rondo-web" in node.units]
        return f"http://127.0.0.1:{web[next(self._turn) % len(web)].port}"


@contextmanager
def _serving(server: postgres.Postgres | valkey.Valkey, stop: signal.Signals) -> Iterator[None]:
    process = server.spawn()
    try:
        wait_until_ready(server, process)
        yield
    finally:
        process.send_signal(stop)
        process.wait(30)


@contextmanager
def own_database(folder: Path, password: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """A PostgreSQL that nobody else uses: the page's addresses of it, and its superuser's environment."""
    server = postgres.prepare(data=folder, log=folder.with_suffix(".log"), password=password)
    with _serving(server, signal.SIGINT):
        yield (
            {
                "ROLE rondo ": "ROLE rondo_owner ",
                "DATABASE rondo OWNER rondo": "DATABASE rondo OWNER rondo_owner",
                "//rondo:$DB_PASSWORD@10.0.0.10:5432/rondo": (
                    f"//rondo_owner:$DB_PASSWORD@127.0.0.1:{server.port}/rondo"
                ),
            },
            {
                "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": postgres.USER,
                "PGPASSWORD": password, "PGDATABASE": "postgres", "PATH": f"{server.program.parent}:{PATH}",
            },
        )  # fmt: skip


@contextmanager
def _broker(folder: Path, name: str) -> Iterator[dict[str, str]]:
    if works("rabbitmqctl", "-q", "add_vhost", name):
        try:
            yield {
                "rabbitmqctl add_user rondo": f"rabbitmqctl -q add_user {name}",
                "rabbitmqctl set_permissions rondo": f"rabbitmqctl -q set_permissions -p {name} {name}",
                "//rondo:$BROKER_PASSWORD@10.0.0.10:5672//": f"//{name}:$BROKER_PASSWORD@127.0.0.1:5672/{name}",
            }
        finally:
            for what in ("delete_vhost", "delete_user"):
                works("rabbitmqctl", "-q", what, name)
        return
    server = valkey.prepare(data=folder / "valkey", log=folder / "valkey.log", password=name)
    with _serving(server, signal.SIGTERM):
        yield {"rabbitmqctl": ":", "amqp://rondo:$BROKER_PASSWORD@10.0.0.10:5672//": server.url}


@contextmanager
def fleet(folder: Path, units: dict[str, tuple[str, ...]]) -> Iterator[Fleet]:
    """Machines that the page has prepared, up to its section "Install"."""
    name = f"rondo_{secrets.token_hex(4)}"
    with own_database(folder / "postgres", name) as (places, environ), _broker(folder, name) as broker:
        there = clean() | {"PATH": PATH, "HOME": str(folder), "FOLDER": str(folder)} | environ
        first = Machine(folder=folder, environ=there, places=places | broker)
        there |= _secrets(first)
        first.environ = there
        for block in blocks("Prepare the database and the broker")[1:]:
            first.run(block)
        nodes = [_node(folder / name, name, given, there, first.places) for name, given in units.items()]
        try:
            yield Fleet(nodes=nodes)
        finally:
            for node in nodes:
                node.kill()


def _secrets(machine: Machine) -> dict[str, str]:
    [block] = blocks("Deploy")
    names = ("DB_PASSWORD", "BROKER_PASSWORD", "SECRET_KEY")
    found = machine.run(block, f"echo {' '.join(f'${name}' for name in names)}").split()
    return dict(zip(names, found, strict=True))


def _node(
    folder: Path, name: str, units: tuple[str, ...], environ: dict[str, str], places: dict[str, str]
) -> Node:
    folder.mkdir()
    own = {"/srv/rondo": str(folder), "/etc/rondo": f"{folder}/etc"}
    there = environ | {"HOME": str(folder), "FOLDER": str(folder)}
    machine = Machine(folder=folder, environ=there, places=places | own)
    node = Node(name=name, machine=machine, units=units)
    machine.places["127.0.0.1:8000"] = f"127.0.0.1:{node.port}"
    node.install("0.2.0")
    install, settings, command = blocks("Install")
    [link] = [line for line in install.splitlines() if line.startswith("ln ")]
    machine.run(link)
    machine.run(settings)
    machine.remember(command)
    return node


def connections(url: str) -> int:
    """The clients of a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        row = connection.execute(text).fetchone()
    return int(row[0]) if row else 0


def wait_until_healthy(node: Node) -> None:
    """On a busy machine a worker may take longer to answer than `doctor` waits."""
    told: list[str] = []

    def healthy() -> bool:
        told.append(node.machine.run("rondo doctor || true"))
        return told[-1].endswith("\nhealthy\n")

    try:
        until(healthy, 60)
    except AssertionError:
        raise AssertionError(told[-1]) from None
