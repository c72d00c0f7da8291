"""Other work of a process gives way to a turn that begins for a person, for a short time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery import signals
from django.db import OperationalError

from agent_core.per_process import PerProcess
from sessions_app import hints, tasks
from sessions_app.models import Lane, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns import precedence, run
from sessions_app.turns.commit import Waiting
from sessions_app.turns.precedence import Newcomers, Place
from sessions_app.worker import process
from sessions_app.worker.process import WorkerProcess
from tests.conftest import Person
from tests.fleet import until

pytestmark = pytest.mark.rule("1.7")

LONG = 60.0  # seconds; nothing waits so long but by a mistake


def place(newcomers: Newcomers, *, is_new: bool, is_busy: bool = False, is_full: bool = False) -> Place:
    return Place(newcomers, is_new=is_new, is_busy=lambda: is_busy, is_full=lambda: is_full)


def stepping(other: Place) -> threading.Thread:
    thread = threading.Thread(target=other.step, daemon=True)
    thread.start()
    return thread


def assert_ends(thread: threading.Thread) -> None:
    thread.join(5.0)
    assert not thread.is_alive()


def assert_goes_on(other: Place) -> None:
    assert_ends(stepping(other))


def received(args: list[str] | None) -> None:
    """As Celery tells that a hint was received. It would hide an error."""
    request = SimpleNamespace(name=hints.TASK, args=args)
    answers = signals.task_received.send(None, request=request)
    assert not any(isinstance(answer, Exception) for _, answer in answers)


def waits(newcomers: Newcomers) -> bool:
    return bool(newcomers._changed._waiters)  # type: ignore[attr-defined]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody stops waiting."""
    monkeypatch.setattr(precedence, "LONGEST", LONG)


@pytest.fixture
def small(transactional_db: None) -> Iterator[WorkerProcess]:
    """A worker with a single slot."""
    worker = WorkerProcess([], 1)
    worker.locks.reconnect()
    yield worker
    worker.locks.close()


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each rest. Nobody really sleeps."""
    slept: list[float] = []
    monkeypatch.setattr(precedence, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    return slept


def after_turns(count: int, own: Place) -> Place:
    for _ in range(count):
        own.end_turn()
    own._step_began -= 3_600
    return own


@pytest.mark.usefixtures("patient")
def test_a_turn_whose_hint_was_received_counts_until_it_has_ended(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_process", PerProcess())
    tasks._process.put(worker)
    for args in (["", Lane.AUTO], [""], [], None):
        received(args)
        assert not worker.newcomers.some
    received(["", Lane.PEOPLE])
    thread = stepping(worker.place(Lane.AUTO))
    until(lambda: waits(worker.newcomers))
    person = worker.place(Lane.PEOPLE)
    person.step()
    person.end_turn()
    assert_ends(thread)


@pytest.mark.usefixtures("patient")
def test_a_turn_at_work_takes_no_place_of_one_that_is_expected() -> None:
    newcomers = Newcomers()
    first = place(newcomers, is_new=True)
    first.step()
    newcomers.expect()
    first.step()
    first.end_turn()
    assert newcomers.some
    place(newcomers, is_new=True).end_turn()
    second = place(newcomers, is_new=True)
    second.step()
    second.end_turn()
    assert not newcomers.some


def test_a_worker_whose_slots_are_taken_expects_nobody_and_has_no_rest(
    small: WorkerProcess, person: Person, rests: list[float]
) -> None:
    own = after_turns(2, small.place(Lane.PEOPLE))
    own.step()
    assert len(rests) == 1
    assert small.locks.try_hold(person.session().pk)
    own.step()
    assert len(rests) == 1
    small.expect_person()
    assert not small.newcomers.some


def test_a_turn_that_never_begins_or_never_ends_holds_nobody_up_for_long() -> None:
    for begins in (False, True):
        newcomers = Newcomers()
        if begins:
            place(newcomers, is_new=True).step()
        else:
            newcomers.expect()
        stepping(place(newcomers, is_new=False)).join(5.0)
        assert newcomers.some or not begins
        assert not waits(newcomers)


@pytest.mark.usefixtures("patient")
def test_it_waits_for_all_turns_that_begin() -> None:
    newcomers = Newcomers()
    first, second, other = (place(newcomers, is_new=is_new) for is_new in (True, True, False))
    first.step()
    second.step()
    thread = stepping(other)
    until(lambda: waits(newcomers))
    first.end_turn()
    until(lambda: waits(newcomers))
    assert thread.is_alive()
    second.end_turn()
    assert_ends(thread)


def test_many_turns_that_begin_hold_nobody_up_for_long() -> None:
    newcomers = Newcomers()
    place(newcomers, is_new=True).step()
    newcomers._until = dict.fromkeys(newcomers._until, time.monotonic() + 3_600)
    thread = stepping(place(newcomers, is_new=False))
    assert_ends(thread)


@pytest.mark.usefixtures("patient")
def test_in_a_busy_process_nobody_waits() -> None:
    newcomers = Newcomers()
    place(newcomers, is_new=True, is_busy=True).step()
    assert not newcomers.some
    place(newcomers, is_new=True).step()
    assert_goes_on(place(newcomers, is_new=False, is_busy=True))


def test_the_second_turn_of_a_session_is_not_new() -> None:
    newcomers = Newcomers()
    own = place(newcomers, is_new=True)
    own.step()
    own.end_turn()
    own.step()
    assert not newcomers.some


@pytest.mark.parametrize("is_new", [True, False])
def test_a_queue_that_goes_on_rests_as_long_as_its_last_step_took(
    rests: list[float], *, is_new: bool
) -> None:
    own = after_turns(2, place(Newcomers(), is_new=is_new))
    own.step()
    assert rests == [precedence.LONGEST_REST]  # its last step took an hour
    own._step_began -= precedence.LONGEST_REST / 4
    own.step()
    assert len(rests) == 2
    assert precedence.LONGEST_REST / 4 < rests[1] <= precedence.LONGEST_REST


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_turn_and_one_that_waited_behind_it_do_not_rest(
    rests: list[float], count: int, *, is_new: bool
) -> None:
    after_turns(count, place(Newcomers(), is_new=is_new)).step()
    assert not rests


@pytest.mark.parametrize("state", ["is_busy", "is_full"])
def test_nobody_rests_while_others_wait_for_a_slot(rests: list[float], state: str) -> None:
    after_turns(2, place(Newcomers(), is_new=False, **{state: True})).step()
    assert not rests


def test_what_was_done_in_a_busy_process_makes_no_rest_longer(
    rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precedence, "LONGEST_REST", LONG)
    busy = [True]
    own = Place(Newcomers(), is_new=False, is_busy=lambda: busy[0], is_full=lambda: False)
    after_turns(2, own).step()
    busy[0] = False
    own.step()
    assert len(rests) == 1
    assert rests[0] < LONG  # not the hour


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_queue_rests_from_its_third_turn_unless_another_session_waits_for_its_user(
    worker: WorkerProcess,
    person: Person,
    rests: list[float],
    monkeypatch: pytest.MonkeyPatch,
    *,
    elsewhere: bool,
) -> None:
    session = person.session()
    turns = [receive(session.pk, MessageInput(content=text)) for text in ("one", "two", "three", "four")]
    own_run = run._run

    def run_and_find(*given: Any) -> Waiting:
        return replace(own_run(*given), elsewhere=elsewhere)

    monkeypatch.setattr(run, "_run", run_and_find)
    run.run_next_turns(worker, session.pk, Lane.PEOPLE)
    for turn in turns:
        turn.refresh_from_db()
        assert turn.state == TurnState.SUCCEEDED
    # before the claim, the preparation, the model and the commit of the third and of the fourth
    assert len(rests) == (0 if elsewhere else 8)


@pytest.mark.usefixtures("patient")
def test_a_worker_is_busy_when_more_than_a_few_sessions_are_at_work(
    worker: WorkerProcess, person: Person
) -> None:
    worker.place(Lane.PEOPLE).step()
    held = [worker.locks.try_hold(person.session().pk) for _ in range(process.FEW + 1)]
    assert all(held)
    assert_goes_on(worker.place(Lane.AUTO))


def test_no_turn_counts_after_it_has_ended(
    worker: WorkerProcess, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = person.session()
    run.run_next_turns(worker, session.pk, Lane.PEOPLE)  # nothing waits
    assert not worker.newcomers.some
    turn = receive(session.pk, MessageInput(content="hello"))
    run.run_next_turns(worker, session.pk, Lane.PEOPLE)
    turn.refresh_from_db()
    assert turn.state == TurnState.SUCCEEDED
    assert not worker.newcomers.some

    def fails(*_args: object, **_more: object) -> None:
        raise OperationalError

    receive(session.pk, MessageInput(content="again"))
    monkeypatch.setattr(run, "claim_next", fails)
    with pytest.raises(OperationalError):
        run.run_next_turns(worker, session.pk, Lane.PEOPLE)
    assert not worker.newcomers.some
