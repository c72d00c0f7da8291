"""The faults: what a fleet meets, each for a bounded time. A fault answers what it did in one line."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import psycopg
import redis

from chaos.load import ask
from chaos.server import System, stop_for

Fault = Callable[[System, random.Random], str]
HELD = 20.0  # seconds
SLOW = 0.05  # seconds before each piece of an answer of the database
BURST = 40  # messages at once


def _kill(kind: str, times: int = 1) -> Fault:
    """SIGKILL a process of this kind, and the ones that take its place."""

    def kill(system: System, chance: random.Random) -> str:
        for number in range(times):
            if number:
                time.sleep(chance.uniform(0.5, 4))
            with suppress(ProcessLookupError, IndexError):
                os.kill(chance.choice(system.up.pids(kind)), signal.SIGKILL)
        return f"a {kind} process, {times} times"

    return kill


def _stop(kind: str, seconds: float) -> Fault:
    """SIGSTOP, and SIGCONT after so many seconds."""

    def stop(system: System, chance: random.Random) -> str:
        victims = system.postgres_pids() if kind == "postgres" else [chance.choice(system.up.pids(kind))]
        stop_for(victims, seconds)
        return f"{kind} stopped for {seconds:.0f} s"

    return stop


def _kill_backends(system: System, _: random.Random) -> str:
    """End every second connection to the database, whatever it does."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    query += " WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5"
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        return f"{(connection.execute(query).fetchone() or (0,))[0]} backends"


def _hold(readers: int, isolation: psycopg.IsolationLevel, statement: str) -> Fault:
    """Leave transactions open that have read or locked something."""

    def hold(system: System, _: random.Random) -> str:
        with ExitStack() as open_ones:
            for _reader in range(readers):
                connection = open_ones.enter_context(psycopg.connect(system.database_url))
                connection.isolation_level = isolation
                connection.execute(statement)
            time.sleep(HELD)
        return f"{readers} transactions for {HELD:.0f} s"

    return hold


def _flush(system: System, _: random.Random) -> str:
    """The broker forgets all that it held."""
    with redis.Redis.from_url(system.broker.address) as client:
        held = client.dbsize()
        client.flushall()
    return f"{held} keys"


def _stop_broker(system: System, _: random.Random) -> str:
    """Open and new connections are taken and never answered."""
    system.broker.stop()
    time.sleep(HELD)
    system.broker.go_on()
    return f"for {HELD:.0f} s"


def _slow(system: System, _: random.Random) -> str:
    """Each answer of the database takes longer."""
    for delay, held in ((SLOW, HELD), (0.0, 0.0)):
        system.database.delay = delay
        for link in system.database.links:
            link.delay = delay
        time.sleep(held)
    return f"{SLOW * 1000:.0f} ms more for {HELD:.0f} s"


def _burst(system: System, _: random.Random) -> str:
    """Many messages of somebody else at once."""
    ask(system, system.mallory, "POST", "/api/agents/", {"name": "mallory"})
    seen: list[int] = []

    def post() -> None:
        body = {"agent": "mallory", "key": f"web:burst-{threading.get_ident()}"}
        with suppress(OSError):
            seen.append(ask(system, system.mallory, "POST", "/api/sessions/", body)[0])

    threads = [threading.Thread(target=post) for _ in range(BURST)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return f"{len(seen)} of {BURST} answered"


_READ = "SELECT count(*) FROM sessions_app_turn"
_LOCK = "SELECT pg_advisory_xact_lock_shared(1), count(*) FROM sessions_app_session"
FAULTS: dict[str, Fault] = {
    "kill-worker": _kill("worker"),
    "repeated-kill": _kill("worker", times=5),
    "kill-beat": _kill("beat"),
    "kill-web": _kill("web"),
    "stop-continue": _stop("worker", 20.0),
    "postgres-stop": _stop("postgres", 10.0),
    "postgres-stop-long": _stop("postgres", 30.0),
    "pg-backend-kill": _kill_backends,
    "connections-dropped-silently": lambda system, _: f"{system.database.silence(dropping=True)} connections",
    "connections-that-acknowledge-only": lambda system, _: f"{system.database.silence()} connections",
    "connections-cut": lambda system, _: f"{system.database.cut()} connections",
    "slow-network": _slow,
    "idle-in-transaction": _hold(1, psycopg.IsolationLevel.READ_COMMITTED, _LOCK),
    "repeatable-read-readers": _hold(4, psycopg.IsolationLevel.REPEATABLE_READ, _READ),
    "broker-silent": lambda system, _: f"{system.broker.silence(dropping=True)} connections",
    "broker-cut": lambda system, _: f"{system.broker.cut()} connections",
    "broker-stop": _stop_broker,
    "broker-flush": _flush,
    "burst": _burst,
}
