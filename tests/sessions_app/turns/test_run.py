"""Going on: a worker runs the turns that wait in a session one after the other, under one lock (rule 1.2)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app import hints
from sessions_app.journal.journal import Journal
from sessions_app.models import Lane, Message, Session, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.commit import NOTHING_WAITS, commit
from sessions_app.turns.context import Prepared, prepare_turn
from sessions_app.turns.lock import Handle, SessionLocks
from sessions_app.turns.precedence import Place
from sessions_app.turns.run import run_next_turns
from sessions_app.worker.process import MOST_IN_A_ROW, MOST_WHEN_FULL, STAY_WHEN_FULL, WorkerProcess
from tests.conftest import Person
from tests.fleet import until
from tests.races import SHARE, gate, in_thread, waiting
from tests.sessions_app.turns.test_claim import ANSWER
from tests.sessions_app.turns.test_receive import automation

pytestmark = pytest.mark.rule("1.2")


@dataclass
class Observed:
    """A worker process that tells between two turns of a session, and while one runs."""

    process: WorkerProcess
    between: Callable[[WorkerProcess], Any] = lambda _process: None
    during: Callable[[], Any] = lambda: None
    followed: list[Handle] = field(default_factory=list)

    @property
    def id(self) -> uuid.UUID:
        return self.process.id

    @property
    def locks(self) -> SessionLocks:
        return self.process.locks

    def place(self, lane: str) -> Place:
        return self.process.place(lane)

    def follow(self, handle: Handle) -> None:
        self.followed.append(handle)
        self.during()
        self.process.follow(handle)

    def may_stay(self, since: float, turns: int, *, elsewhere: bool) -> bool:
        self.between(self.process)
        return not elsewhere and self.process.may_stay(since, turns, elsewhere=False)


def filled(session: Session, count: int) -> list[Turn]:
    return [receive(session.pk, MessageInput(content=f"message {n}")) for n in range(count)]


def claimed(session: Session, worker: WorkerProcess) -> Prepared:
    turn = claim_next(session.pk, worker.id, auto_allowed=False)
    assert turn is not None
    return prepare_turn(turn, Journal(turn))


def begun(session: Session, worker: WorkerProcess) -> Prepared:
    """A message whose turn has begun."""
    receive(session.pk, MessageInput(content="hello"))
    return claimed(session, worker)


def ended(session: Session) -> list[int]:
    rows = Turn.objects.filter(session=session, state=TurnState.SUCCEEDED).order_by("finished_at")
    return list(rows.values_list("pk", flat=True))


def test_one_hint_runs_all_that_waits_each_turn_with_its_own_claim(
    worker: WorkerProcess, person: Person
) -> None:
    session = person.session()
    turns = filled(session, 3)
    runner = Observed(worker)
    run_next_turns(runner, session.pk, Lane.PEOPLE)
    assert ended(session) == [turn.pk for turn in turns]
    assert len({handle.claim for handle in runner.followed}) == 3
    assert len({id(handle.control) for handle in runner.followed}) == 3
    assert worker.locks.held() == []


def test_a_signal_for_an_ended_turn_does_not_reach_the_next(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    turns = filled(session, 3)

    def signal(process: WorkerProcess) -> None:
        for handle in process.locks.held():
            handle.control.cancel()

    run_next_turns(Observed(worker, signal), session.pk, Lane.PEOPLE)
    assert ended(session) == [turn.pk for turn in turns]


def test_after_so_many_turns_in_a_row_it_is_the_turn_of_other_sessions(
    worker: WorkerProcess, person: Person
) -> None:
    session = person.session()
    turns = filled(session, MOST_IN_A_ROW + 2)
    runner = Observed(worker)
    run_next_turns(runner, session.pk, Lane.PEOPLE)
    assert ended(session) == [turn.pk for turn in turns[:MOST_IN_A_ROW]]
    assert worker.locks.held() == []
    run_next_turns(runner, session.pk, Lane.PEOPLE)
    assert ended(session) == [turn.pk for turn in turns]


def test_a_slot_stays_for_a_shorter_time_when_something_waits_for_it(
    worker: WorkerProcess, person: Person
) -> None:
    since = time.monotonic() - STAY_WHEN_FULL
    assert worker.may_stay(since, 1, elsewhere=False)
    assert not worker.may_stay(since, 1, elsewhere=True), "another session of the user was refused"
    held = [worker.locks.try_hold(person.session().pk) for _ in range(2)]
    assert None not in held
    assert not worker.may_stay(since, 1, elsewhere=False), "both of its slots are taken"
    for elsewhere in (False, True):
        assert worker.may_stay(time.monotonic(), MOST_WHEN_FULL - 1, elsewhere=elsewhere)
        assert not worker.may_stay(time.monotonic(), MOST_WHEN_FULL, elsewhere=elsewhere)
    worker.stopping.set()
    assert not worker.may_stay(time.monotonic(), 1, elsewhere=False)


@pytest.mark.rule("1.6")
def test_a_persons_hint_passes_an_automation_on_after_the_release(
    worker: WorkerProcess, person: Person
) -> None:
    session = person.session()
    passed: list[tuple[uuid.UUID, str, list[Handle]]] = []
    first, slot, second = (
        receive(session.pk, MessageInput(content="one")),
        automation(session, "water", datetime.now(UTC)),
        receive(session.pk, MessageInput(content="two")),
    )
    run_next_turns(
        Observed(worker), session.pk, Lane.PEOPLE, lambda *to: passed.append((*to, worker.locks.held()))
    )
    assert ended(session) == [first.pk, second.pk]
    assert passed == [(session.pk, Lane.AUTO, [])]
    run_next_turns(Observed(worker), session.pk, Lane.AUTO)
    assert ended(session) == [first.pk, second.pk, slot.pk]


def test_a_lock_that_was_lost_ends_the_stay(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    turns = filled(session, 2)
    run_next_turns(Observed(worker, lambda process: process.locks.reconnect()), session.pk, Lane.PEOPLE)
    # the lock was taken again by then, so the stay may go on; what matters is that each turn ran under a lock
    run_next_turns(worker, session.pk, Lane.PEOPLE)
    assert ended(session) == [turn.pk for turn in turns]
    assert worker.locks.held() == []


def test_a_late_hint_neither_locks_nor_claims(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    assert worker.locks.try_hold(session.pk, for_work=True) is None
    assert worker.locks.held() == []
    with CaptureQueriesContext(connection) as asked:
        run_next_turns(worker, session.pk, Lane.PEOPLE)
    assert len(asked) == 0


def test_a_commit_waits_for_a_change_of_its_session_and_keeps_it(
    worker: WorkerProcess, person: Person
) -> None:
    session = person.session()
    prepared = begun(session, worker)
    with gate(session, SHARE) as held:
        held.start(lambda: Session.objects.filter(pk=session.pk).update(title="mine", last_seq=5))
        held.start(lambda: commit(prepared, ANSWER))
        held.open()
    session.refresh_from_db()
    assert (session.title, session.last_seq, session.revision) == ("mine", 7, 1)
    assert list(Message.objects.filter(session=session).values_list("seq", flat=True)) == [6, 7]
    assert ended(session) == [prepared.turn.pk]


def test_a_plain_turn_is_three_statements_and_no_transaction(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    receive(session.pk, MessageInput(content="hello"))
    with CaptureQueriesContext(connection) as asked:
        prepared = claimed(session, worker)
    assert len(asked) == 2, "the claim with the context, and step 0"
    with CaptureQueriesContext(connection) as written:
        commit(prepared, ANSWER)
    assert len(written) == 1


def test_a_commit_locks_its_session_before_its_turn(worker: WorkerProcess, person: Person) -> None:
    """As everybody does: who holds the session may still take the turn."""
    session = person.session()
    prepared = begun(session, worker)
    with psycopg.connect(settings.DATABASE_LOCK_URL) as holder:
        holder.execute("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", [session.pk])
        thread, came = in_thread(lambda: commit(prepared, ANSWER))
        until(waiting)
        holder.execute("SELECT 1 FROM sessions_app_turn WHERE id = %s FOR UPDATE NOWAIT", [prepared.turn.pk])
    thread.join(10)
    assert came == [NOTHING_WAITS]


def test_a_failing_later_claim_ends_the_stay_and_wakes_the_session(
    worker: WorkerProcess, person: Person, broker: str
) -> None:
    session = person.session()
    turns = filled(session, 3)

    def cut(process: WorkerProcess) -> None:
        hints.flush_hints(5.0)
        with redis.Redis.from_url(broker) as client:
            client.flushdb()  # the hints of the messages
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            process.locks.execute("SELECT pg_terminate_backend(%s, 5000)", cursor.fetchone())

    run_next_turns(Observed(worker, cut), session.pk, Lane.PEOPLE)
    assert ended(session) == [turns[0].pk]
    assert worker.locks.held() == []
    hints.flush_hints(5.0)
    with redis.Redis.from_url(broker) as client:
        assert client.llen(hints.Hint(session_id=session.pk, lane=Lane.PEOPLE).queue) == 1
