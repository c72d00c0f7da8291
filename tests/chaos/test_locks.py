"""The lock: one live worker per session, and one lost connection interrupts nothing that can go on (rules 1.1, 1.8)."""

import signal
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from sessions_app.hints import Hint, send
from sessions_app.models import Lane, Message, Turn, TurnKind, Worker
from sessions_app.queue.enqueue import enqueue
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.lock import SessionLocks
from tests.conftest import Person
from tests.fleet import Fleet, Process, until
from tests.model_server import ModelServer
from tests.races import backends_that, selected
from tests.services import with_database
from tests.sessions_app.worker.test_process import backends, no_connections
from tests.talk import ended

pytestmark = pytest.mark.rule("1.1", "1.2")
SESSION = uuid.UUID(int=1)


def connected() -> SessionLocks:
    locks = SessionLocks(settings.DATABASE_LOCK_URL)
    locks.reconnect()
    return locks


def cut_lock_connections() -> int:
    pids = backends_that("application_name = 'rondo lock'")
    return len(selected("SELECT pg_terminate_backend(unnest(%s))", pids))


@pytest.fixture
def three(transactional_db: None) -> Iterator[list[SessionLocks]]:
    """The locks of three workers."""
    found = [connected() for _ in range(3)]
    yield found
    for each in found:
        each.close()


def test_a_session_is_held_once_within_and_across_processes(three: list[SessionLocks]) -> None:
    here, there, _ = three
    handle = here.try_hold(SESSION)
    assert handle is not None
    assert here.try_hold(SESSION) is None, "session locks are re-entrant: the guard must refuse"
    assert there.try_hold(SESSION) is None
    here.release(handle)
    assert there.try_hold(SESSION) is not None


def test_an_unlock_of_an_older_connection_frees_nobody(three: list[SessionLocks]) -> None:
    locks, other, third = three
    old = locks.try_hold(SESSION)
    assert old is not None
    cut_lock_connections()
    for each in three:
        each.reconnect()  # `old` had no turn yet, so its lock is not taken again
    assert other.try_hold(SESSION) is not None
    locks.release(old)
    assert third.try_hold(SESSION) is None, "the late unlock freed somebody else's lock"


@pytest.mark.parametrize("released_meanwhile", [False, True])
def test_a_held_lock_is_taken_again_on_the_new_connection(
    three: list[SessionLocks], released_meanwhile: bool
) -> None:
    locks, other, _ = three
    handle = locks.try_hold(SESSION)
    assert handle is not None
    handle.turn_id = 1
    cut_lock_connections()
    if released_meanwhile:
        locks.release(handle)
    else:
        with pytest.raises(psycopg.Error):
            locks.execute("SELECT 1")
    locks.reconnect()
    other.reconnect()
    assert locks.epoch == 2
    if not released_meanwhile:
        assert other.try_hold(SESSION) is None
        locks.release(handle)
    assert other.try_hold(SESSION) is not None


def test_a_second_release_frees_nobody_else(three: list[SessionLocks]) -> None:
    locks, other, _ = three
    hung = locks.try_hold(SESSION)
    assert hung is not None
    locks.release(hung)  # the watchdog, in place of a thread that hangs
    assert locks.try_hold(SESSION) is not None
    locks.release(hung)  # the thread itself, when its tool came back after all
    assert other.try_hold(SESSION) is None
    assert locks.try_hold(SESSION) is None


@pytest.mark.full
def test_a_worker_takes_no_hints_until_its_database_answers(fleet: Fleet, person: Person) -> None:
    name = connection.settings_dict["NAME"]
    with psycopg.connect(with_database(settings.DATABASE_LOCK_URL, "postgres"), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            worker = fleet.worker(ready=False, RONDO_SWEEP_SECONDS="10")
            worker.wait_for("worker_waits_for_database")
        finally:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    worker.wait_for("worker_ready")
    turns = [receive(person.session().pk, MessageInput(content="hello")) for _ in range(4)]
    until(lambda: all(ended(turn) for turn in turns))
    assert {turn.hinted_at for turn in turns} == {None}, "woken by their hints, not by the sweep"


def held_turns(fleet: Fleet, server: ModelServer, person: Person, count: int) -> tuple[Process, list[Turn]]:
    """A worker with so many running turns, each in a session of its own, that wait for their model."""
    fleet.environ["RONDO_TURNS_PER_USER"] = "0"
    worker = fleet.worker(count + 10)
    turns = [receive(person.session().pk, MessageInput(content="[[hold:all]] hello")) for _ in range(count)]
    until(lambda: server.held.get("all") == count)
    return worker, turns


@pytest.mark.rule("1.8")
def test_a_cut_lock_connection_under_running_turns_interrupts_none(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    worker, turns = held_turns(fleet, model_server, person_with_server, 20)
    other = fleet.worker(8)
    assert cut_lock_connections() == 2
    for each in (worker, other):
        each.wait_for("lock_connection_made epoch=2")
    model_server.release("all")
    until(lambda: all(ended(turn) for turn in turns))
    assert {(turn.state, turn.attempt) for turn in turns} == {("succeeded", 1)}
    assert len(model_server.requests) == 20


@pytest.mark.rule("1.10")
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.full)])
def test_a_stopping_worker_exits_promptly_and_its_turns_continue_elsewhere(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, count: int
) -> None:
    leaver, turns = held_turns(fleet, model_server, person_with_server, count)
    stayer = fleet.worker(count + 10)
    assert leaver.stop(seconds=5) == 0
    until(lambda: len(model_server.requests) == 2 * count)
    model_server.release("all")
    until(lambda: all(ended(turn) for turn in turns))
    assert {(turn.state, turn.rescues, turn.attempt) for turn in turns} == {("succeeded", 0, 2)}
    assert Message.objects.filter(role="user").count() == count
    assert stayer.child.poll() is None
    assert not Turn.objects.filter(state__in=["queued", "running"]).exists()


@pytest.mark.full
@pytest.mark.rule("1.8")
def test_the_first_worker_back_takes_no_turn_of_live_workers(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    ours, lost_after = backends(), timedelta(seconds=5)
    fleet.environ["RONDO_WORKER_LOST_SECONDS"] = str(lost_after.seconds)
    late = fleet.worker()
    turn = receive(person_with_server.session().pk, MessageInput(content="[[hold:h]] hello"))
    until(lambda: model_server.held.get("h"))
    early = fleet.worker()
    row = Worker.objects.exclude(pid=late.child.pid)
    with no_connections(but=ours):
        until(lambda: not Worker.objects.filter(heartbeat_at__gt=Now() - lost_after - timedelta(seconds=1)))
        late.signal(signal.SIGSTOP)
    early.wait_for("epoch=2")
    back = row.get().heartbeat_at
    until(lambda: row.get().heartbeat_at > back + timedelta(seconds=2), what="two sweeps later")
    late.signal(signal.SIGCONT)
    late.wait_for("epoch=2")
    model_server.release("h")
    until(lambda: ended(turn))
    assert (turn.state, turn.attempt, len(model_server.requests)) == ("succeeded", 1, 1)


@pytest.mark.full
@pytest.mark.rule("1.8")
def test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.environ |= {"RONDO_TURNS_PER_USER": "0", "RONDO_SWEEP_SECONDS": "600"}
    worker = fleet.worker(16)
    running = receive(person_with_server.session().pk, MessageInput(content="[[hold:h]] hello"))
    until(lambda: model_server.held.get("h") == 1)
    sessions = [person_with_server.session() for _ in range(12)]
    waiting = [Turn(session=each, kind=TurnKind.MESSAGE, lane=Lane.PEOPLE, content="hi") for each in sessions]
    for turn in waiting:
        enqueue(turn)  # without a hint
    seen: list[datetime] = []

    def heartbeats() -> int:
        at = Worker.objects.get().heartbeat_at
        if at not in seen:
            seen.append(at)
        return len(seen)

    with psycopg.connect(settings.DATABASE_LOCK_URL) as migration:
        migration.execute("LOCK TABLE sessions_app_turn IN ACCESS EXCLUSIVE MODE")
        send(Hint(session_id=each.pk, lane=Lane.PEOPLE) for each in sessions)
        until(lambda: heartbeats() > 6, 30)
        migration.rollback()
    assert max(late - early for early, late in pairwise(seen)) < timedelta(seconds=3)
    until(lambda: all(ended(turn) for turn in waiting), 20, "no sweep comes")
    assert "lock_connection_lost" not in worker.text()
    assert Worker.objects.get().epoch == 1
    model_server.release("h")
    until(lambda: ended(running))
    assert (running.state, running.attempt) == ("succeeded", 1)
