"""A user's running turns are bounded in the whole fleet; who was refused is woken when there is room (rule 10.0)."""

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now

from sessions_app import hints
from sessions_app.limits import running_turns
from sessions_app.models import Session, SessionState, Turn, TurnState, Worker
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.next_lane import next_lane
from sessions_app.turns.run import run_next_turn
from sessions_app.worker import sweep as recover
from sessions_app.worker.process import WorkerProcess
from tests.automations.jobs.made import at_once
from tests.automations.messages import a_worker
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.sessions_app.turns.test_claim import Observed, hinted
from tests.sessions_app.turns.test_receive import automation
from tests.talk import ended

pytestmark = [pytest.mark.rule("1.7", "10.0"), pytest.mark.usefixtures("broker")]

BOUND = 6


@pytest.fixture
def bounded(settings: Any) -> int:
    """This process's own claims and sweeps are bounded, too."""
    settings.RONDO_TURNS_PER_USER = BOUND
    return BOUND


def flood(person: Person, count: int, text: str = "[[hold:flood]] hello") -> list[Turn]:
    return [receive(person.session().pk, MessageInput(content=text)) for _ in range(count)]


def waiting() -> int:
    return Turn.objects.filter(state=TurnState.QUEUED).count()


def claimed_at_once(sessions: list[Session], worker: uuid.UUID) -> int:
    came = at_once(*(partial(claim_next, each.pk, worker, auto_allowed=True) for each in sessions))
    return sum(isinstance(each, Turn) for each in came)


def test_claims_that_race_never_go_beyond_the_bound(person: Person, settings: Any) -> None:
    """Without a bound all succeed."""
    worker = a_worker()
    for bound in (BOUND, 1, 0, BOUND):
        settings.RONDO_TURNS_PER_USER = bound
        turns = flood(person, BOUND + 12, "hello")
        expected = bound or len(turns)
        assert claimed_at_once([turn.session for turn in turns], worker) == expected, bound
        assert Turn.objects.filter(state=TurnState.RUNNING).count() == expected
        Turn.objects.filter(state=TurnState.RUNNING).update(state=TurnState.SUCCEEDED, finished_at=Now())
        Turn.objects.filter(state=TurnState.QUEUED).delete()


def test_a_users_automations_leave_room_for_what_the_user_says(bounded: int, person: Person) -> None:
    worker = a_worker()
    storm = [automation(person.session(), f"{n}", datetime.now(UTC)) for n in range(12)]
    assert claimed_at_once([turn.session for turn in storm], worker) == int(bounded * running_turns.AUTO_PART)
    [asked] = flood(person, 1)
    assert claim_next(asked.session_id, worker, auto_allowed=False) is not None


def all_begun(person: Person, count: int, worker: uuid.UUID) -> list[Turn]:
    """So many turns of the person, each claimed."""
    begun = [claim_next(turn.session_id, worker, auto_allowed=True) for turn in flood(person, count)]
    return [turn for turn in begun if turn is not None]


def test_a_turn_that_ends_wakes_the_refused_session_of_its_user(
    settings: Any, person: Person, worker: WorkerProcess, broker: str
) -> None:
    settings.RONDO_TURNS_PER_USER = 1
    busy, other = person.session(), person.session()
    turns = [receive(busy.pk, MessageInput(content=f"message {n}")) for n in range(2)]
    late = receive(other.pk, MessageInput(content="hello"))
    runner = Observed(worker)
    runner.during = lambda: (claim_next(other.pk, a_worker(), auto_allowed=False), next_lane(other.pk))
    hinted(broker)  # those of the messages
    run_next_turn(runner, busy.pk, "turns")
    assert [turn for turn in turns if ended(turn)] == turns[:1]
    woken = {hints.Hint(session_id=each.pk, lane="turns").queue for each in (busy, other)}
    assert set(hinted(broker)) == woken
    run_next_turn(worker, other.pk, "turns")
    assert ended(late)
    assert waiting() == 1, "the next message of the first session"


def test_a_turn_that_is_resumed_needs_no_further_place(bounded: int, person: Person) -> None:
    worker = a_worker()
    first, *_ = all_begun(person, bounded, worker)
    assert Turn.objects.hand_back(first)
    [woken] = next_lane(first.session_id)
    assert (woken.session_id, woken.lane) == (first.session_id, "turns")
    again = claim_next(first.session_id, worker, auto_allowed=True)
    assert again is not None
    assert (again.pk, again.attempt) == (first.pk, 2)


def test_a_refused_claim_wakes_nobody_until_there_is_room(bounded: int, person: Person) -> None:
    worker = a_worker()
    begun = all_begun(person, bounded, worker)
    first, second = flood(person, 2)
    assert claim_next(second.session_id, worker, auto_allowed=True) is None
    for turn in (second, first):  # the first one has found no room after a turn of its own
        assert next_lane(turn.session_id) == [], "a wake-up now would be refused, and wake again, for ever"
    end(begun[0])
    for turn in (first, second):  # they are woken in turn
        assert [row.session_id for row in next_lane(begun[0].session_id)] == [turn.session_id]


def end(turn: Turn) -> None:
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.SUCCEEDED, finished_at=Now())


def test_a_blocked_session_does_not_delay_other_refused_sessions(bounded: int, person: Person) -> None:
    worker = a_worker()
    begun = all_begun(person, bounded, worker)
    closing, at_work, good = flood(person, 3)
    for turn in (closing, at_work, good):
        assert claim_next(turn.session_id, worker, auto_allowed=True) is None
        assert next_lane(turn.session_id) == []
    Session.objects.filter(pk=closing.session_id).update(state=SessionState.DELETING, deleting_since=Now())
    Turn.objects.filter(pk=begun[1].pk).update(session_id=at_work.session_id)
    end(begun[0])
    assert [row.session_id for row in next_lane(begun[0].session_id)] == [good.session_id]


def test_the_sweep_alternates_users_within_their_bounds(bounded: int, person: Person, settings: Any) -> None:
    worker, other = a_worker(), new_person("bob")
    flood(person, 20)
    assert len(all_begun(person, 2, worker)) == 2
    theirs = flood(other, 2)
    Turn.objects.update(queued_at=Now() - timedelta(minutes=1))
    rows = recover.WAITING.all(sweep=settings.RONDO_SWEEP_SECONDS, **running_turns.bounds())
    hinted = Turn.objects.filter(hinted_at__isnull=False)
    assert len(rows) == (bounded - 2) + 2
    assert set(hinted.filter(session__owner=other.user)) == set(theirs)


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> int:
    """The fleet's slots, of which two are for users with no running turn."""
    monkeypatch.setattr(running_turns, "_fleet_slots", running_turns._fleet_slots)  # restored afterwards
    running_turns.set_fleet_slots(20)
    return 20


def test_the_last_slots_are_for_users_with_none(slots: int, settings: Any, transactional_db: None) -> None:
    settings.RONDO_TURNS_PER_USER = 7
    worker = a_worker()
    crowd = [new_person(name) for name in ("ada", "bob", "cyd")]
    assert sum(len(all_begun(each, 8, worker)) for each in crowd) == slots - 2
    latecomers = [new_person(name) for name in ("dan", "eve")]
    assert all(all_begun(each, 1, worker) for each in latecomers)
    more = [turn for each in (*crowd, *latecomers) for turn in flood(each, 1)]
    assert claimed_at_once([turn.session for turn in more], worker) == 0
    woken = [row for turn in more for row in next_lane(turn.session_id)]
    assert woken == [], "they are not woken to be refused"
    Turn.objects.filter(state=TurnState.QUEUED).update(queued_at=Now() - timedelta(minutes=1))
    assert recover.WAITING.all(sweep=settings.RONDO_SWEEP_SECONDS, **running_turns.bounds()) == []


def test_a_turn_refused_in_a_full_fleet_is_woken_by_the_last_of_its_owner(
    slots: int, settings: Any, person: Person
) -> None:
    worker, other = a_worker(), new_person("bob")
    begun = all_begun(other, 17, worker)
    [mine] = all_begun(person, 1, worker)
    [waiting] = flood(person, 1)
    assert claim_next(waiting.session_id, worker, auto_allowed=True) is None
    assert next_lane(waiting.session_id) == []
    all_begun(new_person("cyd"), 1, worker)
    end(mine)
    woken = [row.session_id for row in next_lane(mine.session_id)]
    assert woken == [waiting.session_id], "19 run, none of them mine"
    end(begun[0])
    assert claim_next(waiting.session_id, worker, auto_allowed=True) is not None


@pytest.mark.full
def test_one_user_never_has_all_of_a_small_fleet(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """The default bound is more than these workers have: a part of what they have is the bound then."""
    other = new_person("bob", model="openai-chat:test")
    fleet.environ["RONDO_HEARTBEAT_SECONDS"] = "1"
    fleet.worker(4)
    fleet.worker(4)
    both = Worker.objects.order_by("started_at")
    until(lambda: both[0].heartbeat_at > both[1].started_at, what="the first one knows of the second one")
    turns = flood(person_with_server, 60)
    until(lambda: waiting() == 60 - 7, 60)
    asked = receive(other.session().pk, MessageInput(content="hello"))
    until(lambda: ended(asked), 20, "another user's turn begins although 53 wait")
    until(lambda: model_server.held == {"flood": 7})
    model_server.release("flood")
    until(lambda: all(ended(turn) for turn in turns), 100)
