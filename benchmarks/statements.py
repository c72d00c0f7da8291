"""The number of SQL statements per turn, per received message and per fired job, from PostgreSQL's log.

Each turn runs alone in a real worker whose sweep and liveness reports are delayed. Statements are assigned by server
process: the worker's pool, its lock connection, its publisher, and this process.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import data, fleet
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

QUIET = {"RONDO_SWEEP_SECONDS": "30", "RONDO_HEARTBEAT_SECONDS": "3600"}
LINE = re.compile(r"^\S+ \S+ \S+ \[(\d+)\] LOG:  (?:statement|execute [^:]*): ?")
ADVISORY = re.compile(r"pg_(try_)?advisory|NOTIFY|pg_notify", re.IGNORECASE)
SLOTS = 100  # threads, as with `make up`: in a small fleet the claims of a user are serialized
BATCH = 100  # jobs fired together
SHOWN = 100  # characters of a printed statement
PUBLISHED = 0.3  # seconds until the publishers have sent everything


@dataclass(frozen=True, kw_only=True)
class Executed:
    """A statement. `kind`: connection of the worker (`pool`, `lock`, `publish`), or `own` for this process."""

    kind: str
    text: str

    @property
    def role(self) -> str:
        """`transaction` for BEGIN and COMMIT, `check` for a pool's health check, else `statement`."""
        word = self.text.partition(" ")[0].upper()
        if word in {"BEGIN", "COMMIT", "ROLLBACK"}:
            return "transaction"
        return "check" if self.text in {"", "SELECT 1"} else "statement"


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Count statements. This needs the embedded PostgreSQL, whose log is readable."""
    if servers.postgres_log is None:
        say("not counted: this needs the embedded PostgreSQL, whose log is read")
        return []
    from automations.firing.fire_jobs import fire_due_jobs

    agent, count = data.person(MODEL), sizes.counted_turns
    (session,) = data.sessions(agent, 1)
    jobs, batch = data.jobs([session], count), data.jobs(data.sessions(agent, BATCH), BATCH)
    with (
        psycopg.connect(servers.database_url, autocommit=True, application_name="watch") as watch,
        statements_logged(),
    ):
        publish_once(session)
        log = Log(servers.postgres_log, watch)
        with fleet.worker(servers.folder, "counted", SLOTS, **QUIET):
            wait_for_turns(watch)
            log.read()
            chats, automations = list[Executed](), list[Executed]()
            for job in jobs:
                chat(session, watch)
                chats += log.read()
                fire([job])
                wait_for_turns(watch)
                automations += log.read()
        data.make_due(batch)
        log.read()
        fire_due_jobs(len(batch))
        fired = _count_own(log.read())
    print_statements("chat", chats, count, say)
    print_statements("automation's", automations, count, say)
    return [
        *turn_figures("chat turn", chats, count),
        *turn_figures("automation's turn", automations, count),
        Figure(
            name="SQL per message received",
            value=_count_own(chats) / count,
            count=True,
            note="with BEGIN and COMMIT",
        ),
        Figure(
            name="SQL per fired job", value=fired / BATCH, count=True, note=f"{fired} for a batch of {BATCH}"
        ),
    ]


def turn_figures(name: str, seen: list[Executed], count: int) -> list[Figure]:
    """Statements per turn of the worker that ran `count` turns."""
    worker = [each for each in seen if each.kind != "own"]
    roles = Counter(each.role for each in worker if each.kind == "pool")
    kinds = Counter(each.kind for each in worker)
    note = (
        f"pool {roles['statement'] / count:.3g}, BEGIN and COMMIT {roles['transaction'] / count:.3g}, "
        f"health checks {roles['check'] / count:.3g}, lock {kinds['lock'] / count:.3g}, "
        f"NOTIFY {kinds['publish'] / count:.3g}"
    )
    plain = roles["statement"] + kinds["lock"]
    return [
        Figure(
            name=f"SQL per {name}",
            value=plain / count,
            count=True,
            note="pool and lock connection",
        ),
        Figure(
            name=f"SQL per {name}, round trips",
            # notifications are sent at most ten times a second, so their number varies
            value=round(len(worker) / count),
            count=True,
            note=note,
        ),
    ]


def publish_once(session: Any) -> None:
    """Queue a first message. This connects the publisher of this process, so that `Log` can tell it apart."""
    from sessions_app.postgres.notify import publisher

    data.queue_messages([session], 1)
    publisher().flush(5.0)


def chat(session: Any, watch: psycopg.Connection[Any]) -> None:
    """Send a message and wait for the end of its turn."""
    data.queue_messages([session], 1)
    wait_for_turns(watch)


def fire(jobs: list[str]) -> None:
    """Fire these jobs now."""
    from automations.firing.fire_jobs import fire_due_jobs

    data.make_due(jobs)
    fire_due_jobs(len(jobs))


def wait_for_turns(watch: psycopg.Connection[Any]) -> None:
    """Wait until no turn is queued or running, and all notifications were sent."""
    waiting = "SELECT 1 FROM sessions_app_turn WHERE state IN ('queued', 'running')"
    fleet.until(lambda: watch.execute(waiting).fetchone() is None, "the turn has ended")
    time.sleep(PUBLISHED)  # for the last search for work and the publishers


def _count_own(seen: list[Executed]) -> int:
    return sum(each.kind == "own" and each.role != "check" for each in seen)


def print_statements(kind: str, seen: list[Executed], count: int, say: Callable[[str], None]) -> None:
    """Say the statements of the last of `count` turns."""
    worker = [each for each in seen if each.kind != "own"]
    say(f"the statements of one {kind} turn, as the server saw them:")
    for number, each in enumerate(worker[-(len(worker) // count) :], 1):
        say(f"{number:3} {each.kind:8} {each.text[:SHOWN] or '(health check)'}")


class Log:
    """Reads new lines of PostgreSQL's log. `watch`: a connection to look up server processes."""

    def __init__(self, path: Path, watch: psycopg.Connection[Any]) -> None:
        self._path, self._watch = path, watch
        self._offset = path.stat().st_size
        rows = watch.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'rondo publish'")
        self._ours = {row[0] for row in rows}

    def read(self) -> list[Executed]:
        """Statements since the last call, oldest first, without health checks of lock and publish connections."""
        kinds = self._kinds()
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read().decode(errors="replace")
            self._offset = file.tell()
        return [
            each
            for each in parse_log(text, kinds)
            if each.kind in {"pool", "own"} or ADVISORY.search(each.text)
        ]

    def _kinds(self) -> dict[int, str]:
        names = {
            "rondo lock": "lock",
            "rondo publish": "publish",
            "bench counted": "pool",
            "bench web": "pool",
            "bench": "own",
        }
        rows = self._watch.execute("SELECT pid, application_name FROM pg_stat_activity").fetchall()
        return {pid: names[name] for pid, name in rows if name in names and pid not in self._ours}


def parse_log(text: str, kinds: dict[int, str]) -> Iterator[Executed]:
    """The statements in PostgreSQL's log by the processes in `kinds` (by process id), oldest first."""
    pid, parts = 0, [""]
    for line in [*text.splitlines(), "0 0 0 [0] LOG:  statement: "]:
        if match := LINE.match(line):
            if pid in kinds:
                yield Executed(kind=kinds[pid], text=" ".join(" ".join(parts).split()))
            pid, parts = int(match[1]), [line[match.end() :]]
        elif line.startswith("\t"):
            parts.append(line)


@contextmanager
def statements_logged() -> Iterator[None]:
    """Have PostgreSQL log the statements of connections that are opened within the block; ours is reopened."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        change = f'ALTER DATABASE "{cursor.fetchone()[0]}"'
        cursor.execute(f"{change} SET log_statement = 'all'")
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"{change} RESET log_statement")
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
