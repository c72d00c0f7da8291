"""The system under test: PostgreSQL and the broker behind proxies, and one `manage.py up` that uses them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from config.supervisor import postgres, valkey
from tests.fleet import until
from tests.proxy import Proxy
from tests.up import ROOT, Up, clean_environ, run

MALLORY = "mallory"
_MAKE_MALLORY = (
    "from django.contrib.auth.models import User; from sessions_app.tokens.issue import NewToken, make_token;"
    f" print(make_token(User.objects.create_user('{MALLORY}'), NewToken(name='soak', scopes=['manage']))[1])"
)


@dataclass(frozen=True, kw_only=True)
class System:
    """A running server. `database_url` goes past the proxy; `mallory` is the token of a second, hostile user."""

    up: Up
    postgres: subprocess.Popen[bytes]
    database_url: str
    database: Proxy
    broker: Proxy
    mallory: str

    @property
    def url(self) -> str:
        return self.up.url

    @property
    def headers(self) -> dict[str, str]:
        return self.up.headers

    @property
    def token(self) -> str:
        return self.up.token

    def postgres_pids(self) -> list[int]:
        """The server process and its children, which have process groups of their own."""
        head = self.postgres.pid
        return [head, *map(int, Path(f"/proc/{head}/task/{head}/children").read_text().split())]


@contextmanager
def running(folder: Path) -> Iterator[System]:
    """Start everything; stop it at the end."""
    database = postgres.prepare(data=folder / "postgres", log=folder / "postgres.log", password="soak")
    broker = valkey.prepare(data=folder / "valkey", log=folder / "valkey.log", password="soak")
    children = [database.spawn(), broker.spawn()]
    try:
        until(database.answers, what="PostgreSQL answers")
        until(broker.answers, what="the broker answers")
        database.make_database()
        proxies = Proxy(database.url), Proxy(broker.url)
        environ = clean_environ() | {"DATABASE_URL": proxies[0].url, "CELERY_BROKER_URL": proxies[1].url}
        own = {"SECRET_KEY": "only-for-the-soak", "HTTPS": "0", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
        up = Up(folder=folder, environ=environ)
        up.start("--workers", "2", "--beats", "2", "--concurrency", "20")
        try:
            up.wait_ready()
            yield System(
                up=up,
                postgres=children[0],
                database_url=database.url,
                database=proxies[0],
                broker=proxies[1],
                mallory=_manage(environ | own, "shell", "-v", "0", "-c", _MAKE_MALLORY),
            )
        finally:
            up.end()
    finally:
        for child, number in zip(children, (signal.SIGINT, signal.SIGTERM), strict=True):
            child.send_signal(number)
            child.wait(30)


def _manage(environ: dict[str, str], *arguments: str) -> str:
    done = run(sys.executable, str(ROOT / "manage.py"), *arguments, env=environ, check=True)
    return done.stdout.strip().splitlines()[-1]


def stop_for(pids: list[int], seconds: float) -> None:
    """SIGSTOP, and SIGCONT after so many seconds."""
    _signal(pids, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
