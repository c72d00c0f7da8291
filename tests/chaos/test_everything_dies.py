"""Workers, beats, web, broker and PostgreSQL of a running system are killed in turn: every invariant holds."""

from __future__ import annotations

import json
import os
import random
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fleet import QUICK
from tests.properties.queries import SQL
from tests.up import Up, alive, clean_environ, until

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.rule("2.3")]

SESSIONS = 4
VICTIMS = ("worker", "postgres", "beat", "broker", "web", "worker", "beat", "postgres", "worker")

BROKEN = SQL | {
    "a turn that did not end": "SELECT id FROM sessions_app_turn WHERE state IN ('queued', 'running')",
    "a run that did not end": "SELECT run_id FROM automations_runrecord WHERE state IN ('queued', 'running')",
    "a turn without exactly one question": "SELECT t.id FROM sessions_app_turn t LEFT JOIN sessions_app_message m"
    " ON m.turn_id = t.id AND m.role = 'user' WHERE t.state = 'succeeded' GROUP BY t.id HAVING count(m.id) <> 1",
    "a turn without an answer people see": "SELECT t.id FROM sessions_app_turn t LEFT JOIN sessions_app_message m"
    " ON m.turn_id = t.id AND m.role = 'assistant' AND m.content <> '' WHERE t.started_at IS NOT NULL"
    " AND t.state <> 'merged' GROUP BY t.id HAVING count(m.id) = 0",
    "a turn without exactly one end": "SELECT t.id FROM sessions_app_turn t LEFT JOIN sessions_app_event e"
    " ON e.turn_id = t.id AND e.type = 'turn_end' GROUP BY t.id HAVING count(e.id) <> 1",
    "a run whose outcome is not its turn's": "SELECT r.run_id FROM automations_runrecord r JOIN sessions_app_turn t"
    " ON t.id = r.turn_id WHERE r.state::text <> t.state::text",
    "a run without its turn": "SELECT run_id FROM automations_runrecord WHERE state <> 'skipped' AND turn_id IS NULL",
    "a turn of no run": "SELECT t.id FROM sessions_app_turn t LEFT JOIN automations_runrecord r ON r.turn_id = t.id"
    " WHERE t.kind = 'automation' AND r.run_id IS NULL",
    "a slot that is not accounted for once": "SELECT j.id FROM automations_cronjob j JOIN automations_jobclock c"
    " ON c.job_id = j.id LEFT JOIN automations_runrecord r ON r.job_id = j.id GROUP BY j.id, c.last_slot HAVING"
    " coalesce(sum(CASE WHEN r.state = 'skipped' THEN r.slots_count ELSE 1 END), 0) <>"
    " round(extract(epoch FROM c.last_slot - j.anchor))",
}


class Client:
    """The API, with the patience of a program that wants its request done once."""

    def __init__(self, up: Up) -> None:
        self.up = up

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, key: str = ""
    ) -> dict[str, Any]:
        answer: list[dict[str, Any]] = []
        until(lambda: self._try(answer, method, path, body, key), 60)
        return answer[0]

    def _try(self, answer: list[Any], method: str, path: str, body: Any, key: str) -> bool:
        connection = self.up.connection()
        headers = {"Authorization": f"Token {connection['token']}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            connection["url"] + path,
            method=method,
            headers=headers | ({"Idempotency-Key": key} if key else {}),
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                answer.append(json.loads(reply.read() or b"{}"))
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
            return False
        except OSError:
            return False
        return True


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    quick = {name: value for name, value in QUICK.items() if name != "RONDO_PLUGINS"}
    up = Up(folder=tmp_path, environ=clean_environ() | quick)
    up.start("--workers", "2", "--beats", "2")
    try:
        up.wait_ready()
        yield up
    finally:
        up.end()


def pids(up: Up, kind: str) -> list[int]:
    found = up.connection()["pids"][kind]
    return found if isinstance(found, list) else [found]


def kill_and_see_it_replaced(up: Up, kind: str, chance: random.Random) -> None:
    victim = chance.choice(pids(up, kind))
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in pids(up, kind) and all(alive(pid) for pid in pids(up, kind)), 60)


def rows(up: Up, query: str) -> list[Any]:
    with psycopg.connect(up.connection()["database_url"]) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.rule("1.4")
def test_every_invariant_holds_whatever_dies(up: Up) -> None:
    client, chance = Client(up), random.Random(7)
    sessions = [
        client.call("POST", "/api/sessions/", {"agent": "demo"}, f"session-{number}")["id"]
        for number in range(SESSIONS)
    ]
    jobs = [
        client.call(
            "POST",
            f"/api/sessions/{session}/automations/",
            {"message": "tick", "schedule": {"kind": "every", "seconds": 1}, "overlap": "queue"},
            f"job-{session}",
        )["id"]
        for session in sessions
    ]
    for round_, kind in enumerate(VICTIMS):
        for number, session in enumerate(sessions):
            body = {"content": f"message {round_}", "on_busy": "enqueue"}
            client.call("POST", f"/api/sessions/{session}/messages/", body, f"message-{round_}-{number}")
        kill_and_see_it_replaced(up, kind, chance)
    for job in jobs:
        client.call("PATCH", f"/api/automations/{job}/", {"enabled": False})
    until(lambda: not rows(up, BROKEN["a turn that did not end"]), 90)
    found = {what: rows(up, query) for what, query in BROKEN.items()}
    assert {what: which for what, which in found.items() if which} == {}
    [(messages,)] = rows(
        up, "SELECT count(*) FROM sessions_app_turn WHERE kind = 'message' AND state = 'succeeded'"
    )
    assert messages == len(VICTIMS) * SESSIONS
    [(ran,)] = rows(up, "SELECT count(*) FROM automations_runrecord WHERE state = 'succeeded'")
    assert ran > SESSIONS
