"""A hint runs the next turn of a session under its lock; what waits behind it is hinted at again (rule 1.2)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import hints
from sessions_app.journal import Journal
from sessions_app.models import Lane, Message, Session, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.commit import commit
from sessions_app.turns.context import prepare_turn
from sessions_app.turns.lock import Handle, SessionLocks
from sessions_app.turns.run import run_next_turn
from sessions_app.worker.process import WorkerProcess
from tests.automations.messages import claimed
from tests.conftest import Person
from tests.races import SHARE, behind, in_line
from tests.sessions_app.turns.test_claim import ANSWER, begun
from tests.sessions_app.turns.test_receive import automation

pytestmark = pytest.mark.rule("1.2")


@dataclass
class Observed:
    """A worker process that tells while a turn runs."""

    process: WorkerProcess
    during: Callable[[], Any] = lambda: None
    followed: list[Handle] = field(default_factory=list)

    @property
    def id(self) -> uuid.UUID:
        return self.process.id

    @property
    def locks(self) -> SessionLocks:
        return self.process.locks

    def follow(self, handle: Handle) -> None:
        self.followed.append(handle)
        self.during()
        self.process.follow(handle)


def hinted(broker: str) -> list[str]:
    """The queues that hold hints, which are taken out."""
    hints.flush_hints(5.0)
    with redis.Redis.from_url(broker) as client:
        queues = [name.decode() for name in client.keys("*.*") if client.type(name) == b"list"]
        client.flushdb()
    return queues


def ended(session: Session) -> list[int]:
    rows = Turn.objects.filter(session=session, state=TurnState.SUCCEEDED).order_by("finished_at")
    return list(rows.values_list("pk", flat=True))


def test_a_hint_runs_one_turn_and_hints_at_the_next_after_the_release(
    worker: WorkerProcess, person: Person, broker: str
) -> None:
    session = person.session()
    turns = [receive(session.pk, MessageInput(content=f"message {n}")) for n in range(3)]
    runner = Observed(worker)
    for number in range(1, 4):
        hinted(broker)
        run_next_turn(runner, session.pk, Lane.PEOPLE)
        assert ended(session) == [turn.pk for turn in turns[:number]]
        assert hinted(broker) == ([f"turns.{hints.shard_of(session.pk)}"] if number < 3 else [])
        assert worker.locks.held() == []
    assert len({handle.claim for handle in runner.followed}) == 3
    assert len({id(handle.control) for handle in runner.followed}) == 3


@pytest.mark.rule("1.6")
def test_a_persons_hint_runs_no_automation_and_hints_at_it(
    worker: WorkerProcess, person: Person, broker: str
) -> None:
    session = person.session()
    first = receive(session.pk, MessageInput(content="one"))
    slot = automation(session, "water", datetime.now(UTC))
    hinted(broker)
    run_next_turn(worker, session.pk, Lane.PEOPLE)
    assert hinted(broker) == [f"auto.{hints.shard_of(session.pk)}"]
    run_next_turn(worker, session.pk, Lane.PEOPLE)
    assert ended(session) == [first.pk]
    run_next_turn(worker, session.pk, Lane.AUTO)
    assert ended(session) == [first.pk, slot.pk]


def test_a_late_hint_neither_locks_nor_claims(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    assert worker.locks.try_hold(session.pk, for_work=True) is None
    assert worker.locks.held() == []
    with CaptureQueriesContext(connection) as asked:
        run_next_turn(worker, session.pk, Lane.PEOPLE)
    assert len(asked) == 0


def test_a_commit_waits_for_a_session_change_and_keeps_it(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    prepared = begun(session, worker.id)
    changes = partial(Session.objects.filter(pk=session.pk).update, title="mine", last_seq=5)
    in_line(session, SHARE, changes, partial(commit, prepared, ANSWER))
    session.refresh_from_db()
    assert (session.title, session.last_seq, session.revision) == ("mine", 7, 1)
    assert list(Message.objects.filter(session=session).values_list("seq", flat=True)) == [6, 7]
    assert ended(session) == [prepared.turn.pk]


def test_a_plain_turn_is_four_statements(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    receive(session.pk, MessageInput(content="hello"))
    with CaptureQueriesContext(connection) as asked:
        turn = claimed(session, worker.id)
        prepared = prepare_turn(turn, Journal(turn))
    said = [each["sql"] for each in asked if each["sql"] not in {"BEGIN", "COMMIT"}]
    assert len(said) == 3, "the claim, the context, and step 0"
    with CaptureQueriesContext(connection) as written:
        commit(prepared, ANSWER)
    first, *within, last = (each["sql"] for each in written)
    assert (first, last) == ("BEGIN", "COMMIT")
    assert len(within) == 1, "the session's lock, and the turn with its messages and events"


def test_a_commit_locks_its_session_before_its_turn(worker: WorkerProcess, person: Person) -> None:
    """As everybody does: who holds the session may still take the turn."""
    session = person.session()
    prepared = begun(session, worker.id)
    with psycopg.connect(settings.DATABASE_LOCK_URL) as holder:
        holder.execute("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", [session.pk])
        comes_to = behind(lambda: commit(prepared, ANSWER))
        holder.execute("SELECT 1 FROM sessions_app_turn WHERE id = %s FOR UPDATE NOWAIT", [prepared.turn.pk])
    assert comes_to() is None
