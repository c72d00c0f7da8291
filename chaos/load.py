"""Work whose outcome is known exactly: messages that are each posted until they are accepted, and automations."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg

from chaos.checker import Event, check
from tests.fleet import until
from tests.queries import queries

SESSIONS = 6
EVERY = 2  # seconds between two slots of a job, and about between two messages of a session
TRY_AGAIN = 0.5  # seconds
LONGEST_OUTAGE = 180.0  # seconds after which a request that nobody takes is a failure of its own
ENDS_WITHIN = 180.0  # seconds for everything that was accepted to end once the faults have ceased

OURS = "s.key LIKE 'web:soak-%'"
OPEN = "SELECT t.id, s.key, t.kind, t.state FROM sessions_app_turn t JOIN sessions_app_session s ON s.id = t.session_id"
OPEN += " WHERE t.state IN ('queued', 'running')"


class System(Protocol):
    """What the load is put on."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def database_url(self) -> str: ...

    @property
    def headers(self) -> dict[str, str]: ...


class Refused(Exception):
    """An answer that no patience mends."""


def ask(
    system: System, token: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    """One request. OSError or http.client.HTTPException when nothing answers."""
    parts = urlsplit(system.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        sent = {"Authorization": f"Token {token}", "Content-Type": "application/json"} | system.headers
        connection.request(method, path, None if body is None else json.dumps(body), sent | headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def insist(
    system: System, method: str, path: str, body: Any = None, key: str = ""
) -> tuple[dict[str, Any], int]:
    """The answer, however often it takes; and how many tries it took. Refused for a 4xx other than 429."""
    headers = {"Idempotency-Key": key} if key else {}
    deadline, tries = time.monotonic() + LONGEST_OUTAGE, 0
    while True:
        tries += 1
        try:
            status, text = ask(system, system.token, method, path, body, **headers)
        except (OSError, http.client.HTTPException) as error:
            status, text = 0, repr(error).encode()
        if 200 <= status < 300:
            return json.loads(text or b"{}"), tries
        if status == 500 or (400 <= status < 500 and status not in {408, 409, 429}):
            raise Refused(f"{method} {path} answered {status}: {text[:300]!r}")
        if time.monotonic() > deadline:
            raise Refused(
                f"{method} {path} was not taken for {LONGEST_OUTAGE:.0f} s: {status} {text[:300]!r}"
            )
        time.sleep(TRY_AGAIN)


@dataclass(kw_only=True)
class Load:
    """Sessions with a person who writes and an automation each."""

    system: System
    name: str = ""  # part of the keys of its sessions
    posted: int = 0
    refused: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds until a message was accepted
    history: list[Event] = field(default_factory=list)  # what the clients saw (chaos/checker.py)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _jobs: list[str] = field(default_factory=list)
    _sessions: list[str] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Make the sessions and their automations, and begin to write."""
        for number in range(SESSIONS):
            key = f"web:soak-{self.name}{number}"
            made, _ = insist(self.system, "POST", "/api/sessions/", {"agent": "demo", "key": key}, f"s-{key}")
            job = {"message": "tick", "schedule": {"kind": "every", "seconds": EVERY}, "overlap": "queue"}
            self._sessions.append(made["id"])
            path = f"/api/sessions/{made['id']}/automations/"
            self._jobs.append(insist(self.system, "POST", path, job, f"j-{key}")[0]["id"])
            thread = threading.Thread(target=self._write, args=(made["id"],), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop writing and firing."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(LONGEST_OUTAGE + 30)
        for job in self._jobs:
            insist(self.system, "PATCH", f"/api/automations/{job}/", {"enabled": False})

    def _write(self, session: str) -> None:
        number = 0
        while not self._stopped.wait(EVERY):
            number += 1
            text = f"think for 3 seconds: {number}" if number % 5 == 0 else f"message {number}"
            body, key = {"content": text, "on_busy": "enqueue"}, f"m-{session}-{number}"
            began = time.monotonic()
            with self._recorded("append", session, value=text) as seen:
                insist(self.system, "POST", f"/api/sessions/{session}/messages/", body, key)
                seen["type"] = "ok"
            if seen["type"] == "ok":
                with self._guard:
                    self.posted += 1
                    self.waits.append(time.monotonic() - began)
            if number % 10 == 0:
                self.read(session)

    def read(self, session: str) -> None:
        """Read all turns of the session, as a client does, and record what they were and when."""
        with self._recorded("read", session) as seen:
            turns = self._turns_of(session)
            people = sorted((turn["id"], turn["content"]) for turn in turns if turn["kind"] == "message")
            seen |= {"type": "ok", "values": [content for _, content in people]}

    def read_all(self) -> None:
        """Read each session once more, when everything has ended, and when its turns began and ended."""
        for session in self._sessions:
            self.read(session)
            with self._recorded("turns", session) as seen:
                turns = [each for each in self._turns_of(session) if each["started_at"]]
                spans = [[_seconds(each["started_at"]), _seconds(each["finished_at"])] for each in turns]
                seen |= {"type": "ok", "spans": spans}

    def _turns_of(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        path = f"/api/sessions/{session}/turns/?order=asc"
        while path:
            page, _ = insist(self.system, "GET", path)
            found += page["results"]
            path = (page["next"] or "").removeprefix(self.system.url)
        return found

    @contextmanager
    def _recorded(self, op: str, session: str, **fields: Any) -> Iterator[Event]:
        """Record an operation of this thread. It is unknown how it ended, unless the caller says so."""
        about = {"process": threading.current_thread().name, "op": op, "session": session} | fields
        self.history.append(about | {"type": "invoke", "at": time.monotonic()})
        ended = about | {"type": "unknown"}
        try:
            yield ended
        except Refused as refused:
            self.refused.append(str(refused))
        self.history.append(ended | {"at": time.monotonic()})


def _seconds(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()


def verdict(system: System, load: Load) -> dict[str, Any]:
    """What does not hold, by name; empty when everything does."""
    found: dict[str, Any] = {}
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        try:
            until(lambda: not connection.execute(OPEN).fetchall(), ENDS_WITHIN, "every turn ended")
        except AssertionError:
            found["turns that did not end"] = connection.execute(OPEN).fetchall()[:5]
        for what, query in (queries("invariants") | queries("soak_exact")).items():
            if rows := connection.execute(query.replace(":every", str(EVERY))).fetchall():
                found[what] = rows[:5]
        own = queries("soak_counts")["turns of messages"].replace(OURS, f"s.key LIKE 'web:soak-{load.name}%'")
        (sent,) = connection.execute(own).fetchone() or (0,)
        if sent != load.posted:
            found["messages accepted and turns that succeeded"] = (load.posted, sent)
    load.read_all()
    for anomaly in check(load.history):
        found.setdefault(anomaly.name, []).append(anomaly.detail)
    if load.refused:
        found["requests that were refused"] = load.refused[:5]
    return found


def counts(system: System) -> dict[str, int]:
    """What was done."""
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        return {
            what: int((connection.execute(query).fetchone() or (0,))[0])
            for what, query in queries("soak_counts").items()
        }
