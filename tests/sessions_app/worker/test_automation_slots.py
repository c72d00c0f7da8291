"""Automations wait for a slot within their worker: the slot goes on with them, and no hint passes the broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis

from sessions_app import hints
from sessions_app.models import Lane, Session, Turn, TurnState
from sessions_app.tasks import _run_automation
from sessions_app.worker.process import WorkerProcess
from tests.conftest import Person
from tests.sessions_app.turns.test_receive import automation

pytestmark = [pytest.mark.rule("1.7")]


@pytest.fixture
def queues(broker: str, transactional_db: None) -> Iterator[redis.Redis]:
    if not broker.startswith("redis"):
        pytest.skip("the queues are those of Redis")
    with redis.Redis.from_url(broker) as client:
        client.flushdb()
        yield client
        client.flushdb()


def with_automation(person: Person) -> Session:
    session: Session = person.session()
    automation(session, "water", datetime.now(UTC))
    return session


def parked(worker: WorkerProcess, person: Person, count: int) -> list[Session]:
    """Sessions whose hints came while the only slot was taken."""
    sessions = [with_automation(person) for _ in range(count)]
    other = uuid.uuid4()
    assert worker.auto_slots.take(other)
    for session in sessions:
        _run_automation(worker, session.pk)
    worker.auto_slots.give_back()
    assert not Turn.objects.exclude(state=TurnState.QUEUED).exists()
    return sessions


def succeeded() -> list[uuid.UUID]:
    rows = Turn.objects.filter(state=TurnState.SUCCEEDED).order_by("finished_at")
    return list(rows.values_list("session_id", flat=True))


def forget(queues: redis.Redis) -> None:
    """Forget the hints of what the test has queued itself."""
    hints.flush_hints(5.0)
    queues.flushdb()


def sent(queues: redis.Redis) -> int:
    hints.flush_hints(5.0)
    return sum(int(queues.llen(name)) for name in queues.keys("*") if queues.type(name) == b"list")


def test_a_slot_goes_on_with_the_sessions_that_wait_for_it(
    worker: WorkerProcess, person: Person, queues: redis.Redis
) -> None:
    waiting = parked(worker, person, 3)
    first = with_automation(person)
    forget(queues)
    _run_automation(worker, first.pk)
    assert succeeded() == [first.pk, *(each.pk for each in waiting)]
    assert sent(queues) == 0
    assert worker.auto_slots.is_one_free()


def test_the_last_slot_is_left_to_people(worker: WorkerProcess, person: Person, queues: redis.Redis) -> None:
    waiting = parked(worker, person, 2)
    assert worker.locks.try_hold(person.session().pk), "a person's turn has the other slot"
    first = with_automation(person)
    forget(queues)
    _run_automation(worker, first.pk)
    assert succeeded() == [first.pk]
    assert sent(queues) == 1, "the next one waits behind what people have sent"
    assert worker.auto_slots.unpark() == waiting[1].pk


def test_a_session_that_is_not_done_waits_behind_the_others(
    worker: WorkerProcess, person: Person, queues: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    [other] = parked(worker, person, 1)
    monkeypatch.setattr("sessions_app.worker.process.MOST_WHEN_FULL", 1)
    first = with_automation(person)
    automation(first, "again", datetime.now(UTC))
    forget(queues)
    _run_automation(worker, first.pk)
    assert succeeded() == [first.pk, other.pk, first.pk]
    assert sent(queues) == 0


def test_a_worker_that_stops_asks_others_to_run_what_waits(
    worker: WorkerProcess, person: Person, queues: redis.Redis
) -> None:
    parked(worker, person, 2)
    forget(queues)
    worker.begin_stop()
    assert not worker.may_take_parked()
    worker.pass_on(person.session().pk, Lane.AUTO)
    assert worker.auto_slots.unpark() is None
    assert sent(queues) == 3


def test_a_lone_worker_does_not_send_itself_hints(
    worker: WorkerProcess, person: Person, queues: redis.Redis
) -> None:
    parked(worker, person, 1)
    forget(queues)
    assert worker.auto_slots.take(uuid.uuid4())
    worker._forward_parked()
    assert sent(queues) == 0
    worker.auto_slots.give_back()
    worker._forward_parked()
    assert sent(queues) == 1
