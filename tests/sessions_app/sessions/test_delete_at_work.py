"""A delete meets real workers, and its own death (rule 4.11)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from agent_core.testing import ModelServer
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, JobClock, RunRecord
from sessions_app.models import Message, Session, SessionState, Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.sessions import delete
from sessions_app.turns.receive import MessageInput, receive
from tests.api.conftest import start_web
from tests.conftest import Person
from tests.doors import BLOCKED, BUSY, DELETED, caller, door_of
from tests.fleet import Fleet, until
from tests.races import UPDATE, gate, in_thread, orphans
from tests.sessions_app.sessions.test_delete_races import due, nothing_is_left_of, send, state
from tests.talk import ended

pytestmark = pytest.mark.rule("4.11")

DOORS = pytest.mark.parametrize("door", ["api", pytest.param("admin", marks=pytest.mark.full)])
HANGS = 'use tool wait with {"name": "open"}'


@pytest.fixture(autouse=True)
def _nothing_is_orphaned(transactional_db: None) -> Iterator[None]:
    yield
    assert orphans() == {}


@DOORS
def test_running_turns_stop_and_commit_before_the_session_is_deleted(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, door: str
) -> None:
    worker = fleet.worker()
    session = person_with_server.session()
    create_job(
        NewJob(session_id=session.pk, message="[[hold:h]] x", schedule={"kind": "every", "seconds": 60})
    )
    JobClock.objects.update(next_run_at=Now())
    assert fire_due_jobs().queued == 1
    until(lambda: model_server.held.get("h"))
    receive(session.pk, MessageInput(content="waits behind it"))
    assert door_of(door, person_with_server).delete(session) == BLOCKED
    assert RunRecord.objects.get().state == "running"
    assert door_of(door, person_with_server).delete(session, together=True) == DELETED
    assert nothing_is_left_of(session)
    [last] = [line for line in worker.text().splitlines() if "turn_end" in line]
    assert "state=cancelled" in last
    other = receive(person_with_server.session().pk, MessageInput(content="hello"))
    until(lambda: ended(other))
    assert nothing_is_left_of(session), "nothing recreates it"


@DOORS
def test_a_turn_that_will_not_stop_keeps_session_and_automations(
    fleet: Fleet,
    model_server: ModelServer,
    person_with_server: Person,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
) -> None:
    fleet.worker()
    session = person_with_server.session()
    job = due(session)
    JobClock.objects.update(next_run_at=None)
    before = CronJob.objects.values().get(), JobClock.objects.values().get()
    turn = receive(session.pk, MessageInput(content=HANGS))
    until((fleet.folder / "open.calls").exists)
    waits = receive(session.pk, MessageInput(content="hello", on_busy="enqueue"))  # type: ignore[arg-type]
    monkeypatch.setattr(delete, "LOCK_WAIT", 1.0)
    assert door_of(door, person_with_server).delete(session, together=True) == BUSY
    assert state(session) == SessionState.OPEN
    assert (CronJob.objects.values().get(), JobClock.objects.values().get()) == before
    (fleet.folder / "open.go").touch()
    until(lambda: ended(turn) and ended(waits))
    assert (turn.state, waits.state) == ("cancelled", "succeeded")
    assert Message.objects.filter(session=session, content="Stopped.").exists()
    assert door_of(door, person_with_server).delete(session, together=True) == DELETED
    assert nothing_is_left_of(session)
    assert not CronJob.objects.filter(pk=job.pk).exists()


@pytest.mark.full
def test_a_turn_claimed_while_the_session_closes_is_also_stopped(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    turn = receive(session.pk, MessageInput(content="[[hold:h]] x"))
    with gate(turn, UPDATE) as held:
        # its claim waits for the row, and has seen the session open; in a small fleet another claim would follow it
        fleet.worker(concurrency=64)
        until(claiming)
        locks_of_worker = lock_connections()
        held.start(partial(door_of("api", person_with_server).delete, session), waits=False)
        # the delete has asked the running turns to stop before it asks for the lock
        until(lambda: lock_connections(answered=True) - locks_of_worker)
        assert state(session) == SessionState.DELETING
        assert held.open() == [DELETED]
    assert nothing_is_left_of(session)


def claiming() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE '%claimed%'"
        )
        return bool(cursor.fetchone()[0])


def lock_connections(*, answered: bool = False) -> set[int]:
    """The connections that hold session locks; `answered`: those whose last request for a lock was answered."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rondo lock'"
            " AND (NOT %s OR state = 'idle' AND query LIKE '%%pg_try_advisory_lock%%')",
            [answered],
        )
        return {pid for (pid,) in cursor.fetchall()}


@pytest.mark.full
def test_a_session_works_again_after_its_deleting_process_dies(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    url, web = start_web(fleet.folder)
    fleet.processes.append(web)
    fleet.worker()
    session = person_with_server.session()
    job = due(session)
    JobClock.objects.update(next_run_at=None)
    turn = receive(session.pk, MessageInput(content=HANGS))
    until((fleet.folder / "open.calls").exists)
    token = caller(person_with_server).token

    def ask() -> None:
        http = HTTPConnection(url.removeprefix("http://"), timeout=30)
        path = f"/api/sessions/{session.pk}/?delete_automations=true"
        with suppress(OSError, HTTPException):
            http.request("DELETE", path, headers={"Authorization": f"Token {token}"})
            http.getresponse()
        http.close()

    thread, _ = in_thread(ask)
    until(lambda: state(session) == SessionState.DELETING)
    web.kill()
    thread.join(30)
    assert send(person_with_server, session) == 409
    Session.objects.filter(pk=session.pk).update(deleting_since="2026-01-01T00:00:00Z")
    until(lambda: state(session) == SessionState.OPEN, what="a sweep opens it again")
    assert CronJob.objects.get() == job
    assert send(person_with_server, session) == 202
    (fleet.folder / "open.go").touch()
    until(lambda: ended(turn) and not Turn.objects.filter(state__in=OPEN_STATES).exists())
    assert set(Turn.objects.exclude(pk=turn.pk).values_list("state", flat=True)) <= {"succeeded", "merged"}
    assert door_of("api", person_with_server).delete(session, together=True) == DELETED
    assert nothing_is_left_of(session)


class Storm:
    """Everybody at once: what each request may answer is known, and who was deleted stays deleted."""

    def __init__(self, person: Person, seed: int) -> None:
        self.person, self.random = person, random.Random(seed)
        self.sessions = [person.session() for _ in range(3)]
        self.deleted: set[Any] = set()
        self.answers: set[str] = set()
        self._door = {name: door_of(name, person) for name in ("api", "admin")}

    def run(self, threads: int, rounds: int) -> None:
        doings = [self._send, self._bind, self._toggle, self._beat, self._forget_a_job, self._delete]
        plans = [self.random.choices(doings, weights=[6, 4, 3, 3, 1, 3], k=rounds) for _ in range(threads)]
        running = [in_thread(partial(self._each, plan)) for plan in plans]
        for thread, came in running:
            thread.join(90)
            assert came == [None], came

    def _each(self, plan: list[Callable[[int], str]]) -> None:
        for act in plan:
            self.answers.add(act(random.randrange(3)))
            connection.close()

    def _send(self, number: int) -> str:
        path = f"/api/sessions/{self.sessions[number].pk}/messages/"
        busy = random.choice(["inject", "enqueue", "reject", "interrupt"])
        return self._post("send", path, {"content": "hello", "on_busy": busy})

    def _bind(self, number: int) -> str:
        path = f"/api/sessions/{self.sessions[number].pk}/automations/"
        return self._post("bind", path, {"message": "m", "schedule": {"kind": "every", "seconds": 3600}})

    def _post(self, name: str, path: str, body: dict[str, Any]) -> str:
        return f"{name} {caller(self.person).post(path, body).status_code}"

    def _toggle(self, number: int) -> str:
        answer = caller(self.person).patch("/api/agents/demo/", {"unified_session": bool(number % 2)})
        return f"toggle {answer.status_code}"

    def _beat(self, _number: int) -> str:
        bound = JobClock.objects.filter(job__session__isnull=False).order_by("pk")
        # one by one: several at once are locked in everybody's order
        for pk in bound.values_list("pk", flat=True):
            JobClock.objects.filter(pk=pk).update(next_run_at=Now())
        fire_due_jobs()
        return "beat"

    def _forget_a_job(self, _number: int) -> str:
        job = CronJob.objects.order_by("?").first()
        path = f"/api/automations/{job.pk if job else 'none'}/"
        return f"forget {caller(self.person).delete(path).status_code}"

    def _delete(self, number: int) -> str:
        session = self.sessions[number]
        outcome = self._door[("api", "admin")[number % 2]].delete(session, together=number != 1)
        if outcome == DELETED:
            self.deleted.add(session.pk)
            self.sessions[number] = self.person.session()
        return f"delete {outcome}"


@pytest.mark.full
def test_concurrent_messages_jobs_toggles_and_deletes_leave_no_orphans(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    storm = Storm(person, 1)
    storm.run(threads=6, rounds=20)
    until(lambda: not Turn.objects.filter(state__in=OPEN_STATES).exists(), 60, "every turn has ended")
    expected = {
        "beat",
        "toggle 200",
        *(f"send {status}" for status in (202, 404, 409)),
        *(f"bind {status}" for status in (201, 404, 409)),
        *(f"forget {status}" for status in (204, 404)),
        *(f"delete {outcome}" for outcome in ("deleted", "blocked", "session_busy", "gone")),
    }
    assert storm.answers <= expected
    assert storm.deleted
    assert not Session.objects.filter(pk__in=storm.deleted).exists()
    assert orphans() == {}
    assert door_of("api", person).delete(person.agent, together=True) == DELETED
    left = [
        model.__name__ for model in (Session, CronJob, RunRecord, Turn, Message) if model.objects.exists()
    ]
    assert left == []
