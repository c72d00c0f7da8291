"""The processor time and the SQL statements of the web process for each kind of request.

One client with one connection sends the requests of a round kind by kind, and the rounds interleave the kinds. No
worker runs. The statements are counted afterwards, with a web process whose statements PostgreSQL logs.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import data, fleet
from benchmarks.held import pid_of
from benchmarks.plugin import MODEL
from benchmarks.processor import processor_seconds
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from benchmarks.statements import PUBLISHED, SHOWN, Executed, Log, statements_logged

FEW = 20  # sessions of the user who has few
HISTORY = 100  # messages
PER_SESSION = 15  # messages that are posted to one session, well below the limit of what may wait
COUNTED = 10  # requests of a kind whose statements are counted
WARM = 5  # requests before them, so that the pool has its connections
GENEROUS = {"RONDO_THROTTLE": "1000000/h"}  # each request is counted, as in production
MILLISECONDS = 1000.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request; a `body` makes it a POST."""

    path: str
    body: dict[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Requests of one kind by one user."""

    name: str
    token: str
    requests: Callable[[int], Iterator[Asked]]  # by their number


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, kind: Kind, asked: Asked) -> None:
        """Send the request and read the answer. RuntimeError for an error."""
        body = None if asked.body is None else json.dumps(asked.body)
        headers = {"Authorization": f"Token {kind.token}", "Content-Type": "application/json"} | asked.headers
        self._connection.request("GET" if body is None else "POST", asked.path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{kind.name}: {answer.status} {text[:300]!r}")


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure processor time, then count statements if the log of PostgreSQL can be read."""
    kinds = _kinds(sizes)
    data.settle()
    spent: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    with fleet.web(servers.folder, **GENEROUS) as port:
        client, pid = Client(port), pid_of(port)
        for number in range(sizes.rounds + 1):
            for kind in kinds:
                before = processor_seconds(pid)
                for asked in kind.requests(sizes.asked):
                    client.ask(kind, asked)
                time.sleep(PUBLISHED)  # for its publisher and its hints
                if number:  # the first round warms up
                    spent[kind.name].append((processor_seconds(pid) - before) * MILLISECONDS / sizes.asked)
            say(f"round {number} of {sizes.rounds}")
    counted = {} if servers.postgres_log is None else _counted(servers, servers.postgres_log, kinds, say)
    return [figure for kind in kinds for figure in _figures(kind.name, spent[kind.name], counted)]


def _kinds(sizes: Sizes) -> list[Kind]:
    few, many = data.person(MODEL), data.person(MODEL)
    shown = data.sessions(few, FEW)[0]
    data.sessions(many, sizes.owned)
    data.history(shown, HISTORY)
    data.queue_messages([shown], 1)
    turn = shown.turns.get().pk
    token = data.token(few)

    def reads(name: str, path: str, token: str = token) -> Kind:
        return Kind(name=name, token=token, requests=lambda count: (Asked(path=path) for _ in range(count)))

    return [
        Kind(name="POST a message", token=token, requests=lambda count: _posts(few, count, keyed=False)),
        Kind(name="POST with a key", token=token, requests=lambda count: _posts(few, count, keyed=True)),
        reads("GET /healthz", "/healthz"),  # a request that does nothing
        reads("GET a turn", f"/api/turns/{turn}/"),
        reads("GET a session", f"/api/sessions/{shown.pk}/"),
        reads("GET messages", f"/api/sessions/{shown.pk}/messages/"),
        reads("GET turns", f"/api/sessions/{shown.pk}/turns/"),
        reads(f"GET sessions, {FEW}", f"/api/sessions/?page_size={FEW}"),
        reads(f"GET sessions, {FEW} of {sizes.owned:,}", f"/api/sessions/?page_size={FEW}", data.token(many)),
    ]


def _posts(agent: Any, count: int, *, keyed: bool) -> Iterator[Asked]:
    """Messages to new sessions, some to each."""
    for number, session in enumerate(data.sessions(agent, -(-count // PER_SESSION))):
        for _ in range(min(PER_SESSION, count - number * PER_SESSION)):
            headers = {"Idempotency-Key": uuid.uuid4().hex} if keyed else {}
            yield Asked(
                path=f"/api/sessions/{session.pk}/messages/", body={"content": "Hello"}, headers=headers
            )


def _counted(
    servers: Servers, log: Path, kinds: list[Kind], say: Callable[[str], None]
) -> dict[str, Counter[str]]:
    """By kind, statements of each role for COUNTED requests."""
    counted = {}
    with (
        psycopg.connect(servers.database_url, autocommit=True, application_name="watch") as watch,
        statements_logged(),
        fleet.web(servers.folder, **GENEROUS) as port,
    ):
        client, reader = Client(port), Log(log, watch)
        for kind in kinds:
            for number, asked in enumerate(kind.requests(WARM + COUNTED)):
                if number == WARM:
                    _read(reader)
                client.ask(kind, asked)
            seen = [each for each in _read(reader) if each.kind == "pool"]
            counted[kind.name] = Counter(each.role for each in seen)
            for each in seen[-(len(seen) // COUNTED) :]:
                say(f"{kind.name}: {each.text[:SHOWN] or '(health check)'}")
    return counted


def _read(reader: Log) -> list[Executed]:
    time.sleep(PUBLISHED)  # for the last lines of the log
    return reader.read()


def _figures(name: str, spent: list[float], counted: dict[str, Counter[str]]) -> Iterator[Figure]:
    yield Figure(name=f"{name}, processor", value=statistics.median(spent), unit="ms")
    if name in counted:
        roles = {role: number / COUNTED for role, number in counted[name].items()}
        note = (
            f"BEGIN and COMMIT {roles.get('transaction', 0):.3g}, health checks {roles.get('check', 0):.3g}"
        )
        yield Figure(name=f"{name}, SQL", value=roles.get("statement", 0), count=True, note=note)
