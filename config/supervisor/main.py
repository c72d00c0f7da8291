"""`manage.py up`: start everything, supervise it, stop it."""

import argparse
import os
import shlex
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from config.installation import COMMAND, DATA_FOLDER
from config.supervisor import SetupError, StopRequested, datadir, fleet
from config.supervisor.children import CHECK_SECONDS, Children, block_signals, pause, stop_requested
from config.supervisor.datadir import OPTION, Keys
from config.supervisor.fleet import WILDCARDS, Servers, UpOptions, start_servers
from config.supervisor.terminal import say, step

READY_SECONDS = 90.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SetupError(f"{message} (see {self.prog} --help)")


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(raw: str) -> int:
        if not raw.isascii() or not raw.isdigit() or not least <= int(raw) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}, not {raw!r}")
        return int(raw)

    return read


def up_parser() -> argparse.ArgumentParser:
    """The parser of the command line. Wrong usage is a SetupError; --help prints and exits."""
    parser = _Parser(
        prog=f"{COMMAND} up",
        description="Start everything: database, broker, web, workers, beat. Ctrl-C stops it.",
        epilog="Set DATABASE_URL or CELERY_BROKER_URL to use your own servers instead of the embedded ones.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address that the web process listens on")
    parser.add_argument("--port", default=8000, type=_number(1, 65535), help="port of the web process")
    parser.add_argument("--data-dir", default=DATA_FOLDER, type=Path, help="folder of data, secrets and logs")
    parser.add_argument(
        "--workers",
        default=1,
        type=_number(0, 64),
        help="pairs of workers, for people and for other work",
    )
    parser.add_argument(
        "--concurrency", default=100, type=_number(1, 2000), help="turns that a worker runs at a time"
    )
    parser.add_argument("--beats", default=1, type=_number(0, 16), help="beat processes")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run until Ctrl-C or SIGTERM. Returns 0 after a clean stop, 1 if the system cannot start."""
    try:
        options = UpOptions(**vars(up_parser().parse_args(arguments)))
        block_signals()
        with datadir.locked_folder(options.data_dir) as folder:
            check_port(options.host, options.port)
            _run(options, folder, datadir.load_keys(folder))
    except SetupError as error:
        sys.stderr.write(f"rondo: {error}\n")
        return 1
    return 0


def _run(options: UpOptions, folder: Path, keys: Keys) -> None:
    say(f"Starting Rondo; data and logs: {folder}")
    (folder / "connection.json").unlink(missing_ok=True)  # left by an `up` that was killed
    connection: dict[str, Any] = {}
    children = Children(changed=lambda: _publish(folder, connection, children))
    try:
        servers = start_servers(children, folder, keys, os.environ)
        environ = fleet.child_environment(options, keys, servers)
        servers.wait()
        with step("database schema, demo user and session"):
            created = fleet.run_bootstrap(folder, environ, keys)
        connection |= _connection(options, keys, servers, created)
        with step("web, workers, beat"):
            fleet.start_fleet(children, folder, options, environ)
            # without workers or beats of its own, `up` cannot know when turns can run
            complete = options.workers and options.beats
            _wait_until_ready(children, f"{options.url}/{'readyz' if complete else 'healthz'}")
        if options.host in WILDCARDS and not os.environ.get("ALLOWED_HOSTS"):
            say(
                f"Warning: --host {options.host} accepts any host name; set ALLOWED_HOSTS to the names of this server"
            )
        _announce(connection, created, folder, has_link=options.serves_loopback)
        while not stop_requested(CHECK_SECONDS):
            children.check()
    except StopRequested:
        pass
    finally:
        (folder / "connection.json").unlink(missing_ok=True)
        if children.any_alive():
            say("\nStopping …")
            with step("all stopped"):
                children.stop()


def _connection(options: UpOptions, keys: Keys, servers: Servers, created: dict[str, Any]) -> dict[str, Any]:
    return {
        "url": options.url,
        "token": created["token"],
        "admin_user": fleet.ADMIN_USER,
        "admin_password": keys.admin_password if created["admin_password_valid"] else None,
        "database_url": servers.database_url,
        "broker_url": servers.broker_url,
    }


def _publish(folder: Path, connection: dict[str, Any], children: Children) -> None:
    """Write connection.json, as soon as its contents are known and whenever a process id changes."""
    if not connection:
        return
    pids: dict[str, Any] = {kind: children.pids(kind) for kind in ("web", "worker", "beat")}
    for kind in ("postgres", "broker"):
        pids[kind] = next(iter(children.pids(kind)), None)  # None: not started by us
    datadir.write_private_json(folder / "connection.json", {**connection, "pids": pids})


def _wait_until_ready(children: Children, url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while (answer := _readiness(url)) != "ready":
        if time.monotonic() > deadline:
            raise SetupError(f"not ready after {READY_SECONDS:.0f} s: {answer}; see the logs")
        pause(0.1)
        children.check()


def _readiness(url: str) -> str:
    """`ready`, or a line that says what is missing."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310  (our own address)
            return "ready"
    except urllib.error.HTTPError as error:
        return " ".join(error.read(500).decode(errors="replace").split()) or str(error)
    except OSError as error:
        return str(error)


def _announce(connection: dict[str, Any], created: dict[str, Any], folder: Path, *, has_link: bool) -> None:
    """Print the link that signs in. The password is shown only at the first start; connection.json keeps it."""
    path = created["sign_in_path"] if has_link else None
    say(f"Ready: {connection['url']}{path or '/'}")
    if path:
        where = "" if folder == DATA_FOLDER.resolve() else f" {OPTION} {shlex.quote(str(folder))}"
        say(
            f"  The link signs you in once, within 10 minutes. For another one: {COMMAND} sign_in_link{where}"
        )
    if created["admin_is_new"]:
        user, password = connection["admin_user"], connection["admin_password"]
        say(f"  Your account is {user}, password {password} (shown only now).")
    say("  Ctrl-C stops the server.")


def check_port(host: str, port: int) -> None:
    """Raise SetupError if we cannot listen on this address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetupError(
            f"cannot listen on {host}:{port} ({reason}); choose another with --host or --port"
        ) from None
