"""Our own processes: set-up steps that end, and web, workers and beats that stay."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.supervisor import signals
from config.supervisor.children import Child, Children, StopOrder
from config.supervisor.datadir import Keys
from config.supervisor.errors import SetupError
from config.supervisor.options import WILDCARDS, Options
from config.supervisor.servers import Servers
from config.supervisor.spawn import spawn
from config.supervisor.terminal import last_line

ROOT = Path(__file__).resolve().parents[2]  # the folder of manage.py
ADMIN_USER = "admin"
WORKER_PATIENCE = 20.0  # seconds a worker has to hand back its turns
WEB_GRACE = 3  # seconds that open event streams have


def environment(options: Options, keys: Keys, servers: Servers) -> dict[str, str]:
    """The children's environment: ours, and what `up` provides where it is not set."""
    environ = dict(os.environ)
    if not environ.get("DATABASE_URL"):
        environ.pop("DATABASE_LOCK_URL", None)  # it would be of another database
    environ["DATABASE_URL"] = servers.database_url
    environ["CELERY_BROKER_URL"] = servers.broker_url
    environ["PYTHONUNBUFFERED"] = "1"
    provided = {"SECRET_KEY": keys.secret_key, "HTTPS": "0", "ALLOWED_HOSTS": _allowed_hosts(options.host)}
    return {**environ, **{name: value for name, value in provided.items() if not environ.get(name)}}


def _allowed_hosts(host: str) -> str:
    names = ["localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host]
    if host in WILDCARDS:  # someone meant it to be reached from other machines, under whatever name they use
        names = ["*", socket.gethostname()]
    return ",".join(names)


def migrate(folder: Path, environ: Mapping[str, str]) -> None:
    """Raises SetupError, StopRequested."""
    _run_step(["migrate", "--no-input", "--verbosity=1"], folder / "logs" / "migrate.log", environ)


def bootstrap(folder: Path, environ: Mapping[str, str], keys: Keys) -> dict[str, Any]:
    """Make the demo user, token, agent and session; answers what `manage.py bootstrap` prints.

    `{"token": str, "admin_password_valid": bool}`. Raises SetupError, StopRequested.
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
        raise SetupError(f"`manage.py {arguments[0]}` failed: {last_line(log)}; log: {log}")


def start(children: Children, folder: Path, options: Options, environ: Mapping[str, str]) -> None:
    """Start web, workers and beats."""
    for command, child_name, order, patience in _plan(options):
        log = folder / "logs" / f"{child_name}.log"
        kind = child_name.rstrip("0123456789")
        children.add(
            Child(
                kind=kind,
                name=child_name,
                start=_starter(command, log, environ, child_name),
                log=log,
                order=order,
                patience=patience,
            )
        )


def _starter(command: list[str], log: Path, environ: Mapping[str, str], name: str) -> Any:
    named = {**environ, "PGAPPNAME": f"rondo {name}"}

    def start_it() -> subprocess.Popen[bytes]:
        return spawn([sys.executable, "-m", *command], log=log, cwd=ROOT, environ=named)

    return start_it


def _plan(options: Options) -> list[tuple[list[str], str, StopOrder, float]]:
    web = ["uvicorn", "config.asgi:application", "--host", options.host, "--port", str(options.port)]
    web += ["--timeout-graceful-shutdown", str(WEB_GRACE), "--lifespan", "off", "--no-use-colors"]
    plan = [(web, "web", StopOrder.SOURCE, WEB_GRACE + 3.0)]
    for n in range(1, options.workers + 1):
        worker = ["celery", "-A", "config", "worker", "-P", "threads", "-c", str(options.concurrency)]
        worker += ["-n", f"worker{n}@%h", "--without-gossip", "--without-mingle"]
        plan.append((worker, f"worker{n}", StopOrder.WORKER, WORKER_PATIENCE))
    for n in range(1, options.beats + 1):
        beat = ["celery", "-A", "config", "beat", "--pidfile="]
        plan.append((beat, f"beat{n}", StopOrder.SOURCE, 5.0))
    return plan
