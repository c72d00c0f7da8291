"""The processes of Rondo itself: `manage.py bootstrap`, then web, workers and beats."""

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from config.installation import COMMAND, ROOT
from config.supervisor import signals
from config.supervisor.account import Account, account_for_fleet
from config.supervisor.children import Child, Children, StopOrder
from config.supervisor.datadir import Keys
from config.supervisor.errors import SetupError
from config.supervisor.options import WILDCARDS, UpOptions
from config.supervisor.servers import Servers
from config.supervisor.spawn import spawn
from config.supervisor.terminal import last_line, say

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
    provided = {"SECRET_KEY": keys.secret_key, "HTTPS": "0", "ALLOWED_HOSTS": _allowed_hosts(options.host)}
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
            signals.pause(1)
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
