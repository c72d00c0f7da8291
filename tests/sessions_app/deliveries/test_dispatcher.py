"""The dispatcher: lanes that wait for a place are looked at again whatever became of the one before them."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models.functions import Now

from sessions_app.deliveries import dispatcher as overdue
from sessions_app.deliveries.dispatcher import DeliveryDispatcher
from sessions_app.models import Delivery, Session
from tests.conftest import Person, new_person
from tests.fleet import until
from tests.sessions_app.deliveries.receivers import Receiver, http_receiver
from tests.sessions_app.deliveries.test_send import handed_over, lane_of, told_by


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """One that is several places: every address of this machine's own network leads to it."""
    with http_receiver("0.0.0.0") as found:
        settings.RONDO_WEBHOOK_HOSTS = [found.at(n).removeprefix("http://") for n in range(1, 16)]
        settings.RONDO_DELIVERY_RETRY_SECONDS, settings.RONDO_DELIVERY_SECONDS = (1, 1, 1, 1), 30
        yield found


@pytest.fixture
def dispatcher() -> Iterator[DeliveryDispatcher]:
    """One with four threads, two of them for one place."""
    found = DeliveryDispatcher(threads=4, share=2)
    yield found
    found.stop()


def take(dispatcher: DeliveryDispatcher, sessions: list[Session]) -> None:
    for session in sessions:
        dispatcher.take(lane_of(session))


def lanes(person: Person, receiver: Receiver, count: int, temper: str, place: int = 1) -> list[Session]:
    """Sessions with a delivery each, to paths of their own at one place."""
    found = []
    for number in range(count):
        path = f"/{place}-{temper}{number}"
        receiver.set(path, temper)
        session = told_by(person, f"{receiver.at(place)}{path}")
        handed_over(session)
        found.append(session)
    return found


def is_sent(session: Session) -> bool:
    return Delivery.objects.get(session=session).state == "sent"


def test_waiting_sessions_are_sent_when_an_earlier_one_has_nothing(
    person: Person, receiver: Receiver, dispatcher: DeliveryDispatcher
) -> None:
    sessions = lanes(person, receiver, 6, "hang")
    take(dispatcher, sessions)
    until(lambda: len(receiver.requests) == 2)
    until(lambda: sum(map(len, dispatcher._parked.values())) == 4)
    under_way = {each.data["session"] for each in receiver.requests}
    waiting = [session for session in sessions if str(session.pk) not in under_way]
    Delivery.objects.filter(session__in=waiting[:2]).close("gone")
    for session in waiting[2:]:
        dispatcher.take(lane_of(session))  # twice is harmless, also while it is parked
    receiver.released.set()
    until(lambda: all(map(is_sent, waiting[2:])))
    until(lambda: not dispatcher._busy)
    assert len(receiver.requests) == 4


def test_a_moved_address_does_not_wait_for_the_old_one(
    person: Person, receiver: Receiver, dispatcher: DeliveryDispatcher
) -> None:
    people = (person, new_person("bob"), new_person("cyd"))
    sessions = [lanes(each, receiver, 1, "hang")[0] for each in people]
    take(dispatcher, sessions)
    until(lambda: sum(map(len, dispatcher._parked.values())) == 1)
    [parked] = next(iter(dispatcher._parked.values()))
    Delivery.objects.filter(session=parked.session_id).update(address=f"{receiver.at(2)}/moved")
    dispatcher.take(parked)
    until(lambda: Delivery.objects.get(session=parked.session_id).state == "sent")
    receiver.released.set()


def test_places_that_were_slow_share_half_of_the_threads(
    person: Person, receiver: Receiver, dispatcher: DeliveryDispatcher, settings: Any
) -> None:
    settings.RONDO_DELIVERY_SECONDS = 1
    slow = [lanes(new_person(f"p{n}"), receiver, 1, "hang", n)[0] for n in range(1, 5)]
    take(dispatcher, slow)
    until(lambda: Delivery.objects.filter(state="pending", attempts=1).count() == 4)
    until(lambda: not dispatcher._busy)
    settings.RONDO_DELIVERY_SECONDS = 30
    Delivery.objects.update(next_attempt_at=Now())
    take(dispatcher, slow)
    until(lambda: len(receiver.requests) == 6)
    [well] = lanes(person, receiver, 1, "take", 5)
    dispatcher.take(lane_of(well))
    until(lambda: is_sent(well))
    assert Delivery.objects.filter(state="sending").count() == 2, "and the other two wait"
    receiver.released.set()
    until(lambda: all(map(is_sent, slow)))


def test_too_many_for_one_place_are_left_to_the_sweep(
    person: Person,
    receiver: Receiver,
    dispatcher: DeliveryDispatcher,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sessions_app.deliveries.dispatcher.MOST_PARKED", 5)
    settings.RONDO_DELIVERY_SECONDS, settings.RONDO_SWEEP_SECONDS = 60, 1
    first, second = lanes(person, receiver, 2, "hang")
    take(dispatcher, [first, second])
    until(lambda: len(receiver.requests) == 2)
    more = [told_by(person, f"{receiver.at(1)}/more{n}") for n in range(10)]
    for session in more:
        handed_over(session)
    take(dispatcher, more)
    until(lambda: sum(map(len, dispatcher._parked.values())) == 5)
    until(lambda: not dispatcher._queued)
    assert dispatcher._sending == 2
    receiver.released.set()
    Delivery.objects.update(created_at="2026-11-22T00:00:00Z", hinted_at=None)

    def swept() -> bool:
        Delivery.objects.update(hinted_at=None)
        overdue.sweep_deliveries(dispatcher.take)
        return not Delivery.objects.exclude(state="sent").exists()

    until(swept, 60)
    assert len({each.key for each in receiver.requests}) == 12
    assert is_sent(first)


def test_receivers_that_hang_leave_threads_to_a_user_who_has_none(person: Person, receiver: Receiver) -> None:
    """Each session has a place of its own, none of which was slow before."""
    dispatcher = DeliveryDispatcher(threads=8, share=1)
    others = [new_person("bob"), new_person("cyd")]
    try:
        for number, hog in enumerate(others):
            for place in range(6):
                [session] = lanes(hog, receiver, 1, "hang", 1 + 6 * number + place)
                dispatcher.take(lane_of(session))
            until(lambda: not dispatcher._queued)
        # half of the threads, and what the last quarter leaves
        until(lambda: len(receiver.requests) == 6)
        [well] = lanes(person, receiver, 1, "take", 14)
        dispatcher.take(lane_of(well))
        until(lambda: is_sent(well))
        assert len(receiver.requests) == 7
        receiver.released.set()
        until(lambda: not Delivery.objects.exclude(state="sent").exists())
    finally:
        receiver.released.set()
        dispatcher.stop()


def test_users_take_turns_at_a_place(
    person: Person, receiver: Receiver, dispatcher: DeliveryDispatcher
) -> None:
    hogs = lanes(new_person("bob"), receiver, 9, "hang")
    take(dispatcher, hogs)
    until(lambda: sum(map(len, dispatcher._parked.values())) == 7)
    [well] = lanes(person, receiver, 1, "take")
    dispatcher.take(lane_of(well))
    until(lambda: sum(map(len, dispatcher._parked.values())) == 8)
    receiver.released.set()
    until(lambda: not Delivery.objects.exclude(state="sent").exists())
    order = list(Delivery.objects.order_by("tried_at").values_list("session", flat=True))
    assert order.index(well.pk) < 6, "not behind all seven that wait"


def test_users_take_turns_in_the_sweep(
    person: Person, receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "MOST_HINTS", 2)
    lanes(new_person("bob"), receiver, 4, "take")
    [mine] = lanes(person, receiver, 1, "take")
    Delivery.objects.update(created_at="2026-11-22T00:00:00Z")
    died = {"state": "sending", "claim": uuid.uuid4(), "next_attempt_at": Now()}  # as its worker left it
    Delivery.objects.filter(session=mine).update(**died)
    chosen = overdue._overdue().all(sweep=settings.RONDO_SWEEP_SECONDS)
    assert mine.pk in {row.session_id for row in chosen}
    assert len(chosen) == 2
