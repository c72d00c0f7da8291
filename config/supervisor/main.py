"""The story of `manage.py up`."""

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from config.supervisor import datadir, fleet, options, ports, servers, signals
from config.supervisor.children import LOOK_SECONDS, Children
from config.supervisor.datadir import Keys
from config.supervisor.errors import SetupError, StopRequested
from config.supervisor.options import Options
from config.supervisor.servers import Servers
from config.supervisor.terminal import say, step

READY_SECONDS = 90.0


def main(arguments: Sequence[str]) -> int:
    """Run until Ctrl-C or SIGTERM; 0 after a clean stop, 1 when the system cannot start here."""
    try:
        chosen = options.parse(arguments)
        signals.block()
        with datadir.locked(chosen.data_dir) as folder:
            ports.claim_check(chosen.host, chosen.port)
            _run(chosen, folder, datadir.keys(folder))
    except SetupError as error:
        sys.stderr.write(f"rondo: {error}\n")
        return 1
    return 0


def _run(chosen: Options, folder: Path, keys: Keys) -> None:
    say(f"Starting Rondo; data and logs: {folder}")
    (folder / "connection.json").unlink(missing_ok=True)  # left by one that was killed
    connection: dict[str, Any] = {}
    children = Children(changed=lambda: _publish(folder, connection, children))
    try:
        found = servers.start(children, folder, keys, os.environ)
        environ = fleet.environment(chosen, keys, found)
        with step("database schema"):
            fleet.migrate(folder, environ)
        with step("demo user, agent and session"):
            made = fleet.bootstrap(folder, environ, keys)
        connection |= _connection(chosen, keys, found, made)
        with step("web, workers, beat"):
            fleet.start(children, folder, chosen, environ)
            # Without workers or beats of ours, who runs the turns is somebody else's business.
            complete = chosen.workers and chosen.beats
            _wait_until_ready(children, f"{chosen.url}/{'readyz' if complete else 'healthz'}")
        _announce(connection)
        while not signals.stop_asked(LOOK_SECONDS):
            children.look()
    except StopRequested:
        pass
    finally:
        (folder / "connection.json").unlink(missing_ok=True)
        if children.any_alive():
            say("\nStopping …")
            with step("all stopped"):
                children.stop()


def _connection(chosen: Options, keys: Keys, found: Servers, made: dict[str, Any]) -> dict[str, Any]:
    return {
        "url": chosen.url,
        "token": made["token"],
        "admin_user": fleet.ADMIN_USER,
        "admin_password": keys.admin_password if made["admin_password_valid"] else None,
        "database_url": found.database_url,
        "broker_url": found.broker_url,
    }


def _publish(folder: Path, connection: dict[str, Any], children: Children) -> None:
    """Write connection.json, once its contents are known and whenever a process is new."""
    if not connection:
        return
    pids: dict[str, Any] = {kind: children.pids(kind) for kind in ("web", "worker", "beat")}
    for kind in ("postgres", "broker"):
        pids[kind] = next(iter(children.pids(kind)), None)  # None: not ours
    datadir.write_private(folder / "connection.json", {**connection, "pids": pids})


def _wait_until_ready(children: Children, url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while (answer := _readiness(url)) != "ready":
        if time.monotonic() > deadline:
            raise SetupError(f"not ready after {READY_SECONDS:.0f} s: {answer}")
        signals.pause(0.1)
        children.look()


def _readiness(url: str) -> str:
    """`ready`, or what is missing in one line."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310  (our own address)
            return "ready"
    except urllib.error.HTTPError as error:
        return " ".join(error.read(500).decode(errors="replace").split()) or str(error)
    except OSError as error:
        return str(error)


def _announce(connection: dict[str, Any]) -> None:
    password = connection["admin_password"] or "(the one you chose)"
    say(
        f"Ready: {connection['url']}  admin: {connection['url']}/admin/ "
        f"as {connection['admin_user']} / {password}  stop: Ctrl-C"
    )
