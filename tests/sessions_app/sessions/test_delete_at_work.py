"""A delete meets real workers (rule 4.11)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.models import JobClock, RunRecord
from sessions_app.models import SessionState
from sessions_app.queue.receive import MessageInput, receive
from tests.admin.conftest import make_job
from tests.conftest import Person
from tests.doors import BLOCKED, DELETED, door_of
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.races import UPDATE, gate, orphans
from tests.sessions_app.sessions.test_delete_races import nothing_is_left_of, state
from tests.talk import ended

pytestmark = pytest.mark.rule("4.11")


@pytest.fixture(autouse=True)
def _nothing_is_orphaned(transactional_db: None) -> Iterator[None]:
    yield
    assert orphans() == {}


@pytest.mark.long("a worker whose turn is stopped")
def test_running_turns_stop_and_commit_before_the_session_is_deleted(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    worker = fleet.worker()
    session = person_with_server.session()
    make_job(session, "[[hold:h]] x")
    JobClock.objects.update(next_run_at=Now())
    assert fire_due_jobs().queued == 1
    until(lambda: model_server.held.get("h"))
    receive(session.pk, MessageInput(content="waits behind it"))
    door = door_of("api", person_with_server)
    assert door.delete(session) == BLOCKED
    assert RunRecord.objects.get().state == "running"
    assert door.delete(session, together=True) == DELETED
    assert nothing_is_left_of(session)
    [last] = [line for line in worker.text().splitlines() if "turn_end" in line]
    assert "state=cancelled" in last
    other = receive(person_with_server.session().pk, MessageInput(content="hello"))
    until(lambda: ended(other))
    assert nothing_is_left_of(session), "nothing recreates it"


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
