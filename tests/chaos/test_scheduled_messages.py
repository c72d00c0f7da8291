"""Scheduled messages among beats, workers and people that race and die: each is sent once, in order, or not at all."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from automations.exceptions import MessageSent, TooManyMessages
from automations.firing.fire_messages import fire_due_messages
from automations.models import RunRecord, ScheduledMessage
from automations.scheduled_messages import MOST_WAITING, MessageToSchedule, cancel_message, schedule_message
from sessions_app.models import Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import delete_session
from tests.automations.jobs.made import at_once
from tests.automations.messages import LATER, due, later
from tests.automations.test_scheduled_messages import said
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.races import KEY_SHARE, SHARE, gate, in_thread, orphans, waiting

pytestmark = pytest.mark.rule("8.2")


def soon(seconds: float = 1.5) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def all_sent(count: int) -> bool:
    return ScheduledMessage.objects.filter(status="sent").count() == count


@pytest.mark.rule("8.3")
def test_messages_are_sent_once_in_order_when_a_beat_dies(fleet: Fleet, person: Person) -> None:
    sessions = [person.session() for _ in range(3)]
    fleet.worker()
    beats = [fleet.beat(ready=False) for _ in range(2)]
    for beat in beats:
        beat.wait_for("beat_ready", 60)
    texts = [f"message {number}" for number in range(12)]
    messages = [later(session, text) for text in texts for session in sessions]
    for session in sessions:  # those of one time go in the order of their ids
        rows = ScheduledMessage.objects.filter(session=session, message_text__in=texts[6:]).order_by("pk")
        for text, row in zip(texts[6:], rows, strict=True):
            ScheduledMessage.objects.filter(pk=row.pk).update(message_text=text)
    ScheduledMessage.objects.waiting().filter(message_text__in=texts[6:]).update(
        send_at=datetime.now(UTC) + timedelta(seconds=1)
    )
    due(*messages[: 6 * len(sessions)])
    schedule_message(
        MessageToSchedule(session_id=person.session().pk, send_at=soon(0.2), message_text="wake up")
    )
    until(lambda: Turn.objects.filter(kind="scheduled_message").exists(), 20, "it wakes the beats that sleep")
    beats[0].kill()
    until(lambda: all_sent(len(messages) + 1), 60)
    for session in sessions:
        assert said(session) == texts
    assert RunRecord.objects.count() == Turn.objects.count() == len(messages) + 1
    assert set(Turn.objects.values_list("state", flat=True)) == {"succeeded"}


def test_a_cancel_wins_whether_it_comes_before_or_after_beat(person: Person) -> None:
    session = person.session()
    taken, kept = later(session, "taken"), later(session, "kept")
    due(taken)
    with transaction.atomic():
        fire_due_messages()
        thread, came = in_thread(lambda: cancel_message(taken.pk))
        until(waiting, 20, "the cancel waits")
    thread.join(20)
    assert came[0].status == "cancelled"
    assert Turn.objects.get(session=session).state == "cancelled"
    due(kept)
    with transaction.atomic():
        assert ScheduledMessage.objects.filter(pk=kept.pk).cancel() == 1
        thread, came = in_thread(fire_due_messages)
        thread.join(20)
        assert came[0].claimed == 0, "beat does not wait for it"
    assert fire_due_messages().claimed == 0


@pytest.mark.rule("8.1")
def test_of_many_at_once_no_more_than_twenty_are_stored(person: Person) -> None:
    session = person.session()
    for _ in range(MOST_WAITING - 3):
        later(session)
    came = at_once(*(lambda: later(session) for _ in range(8)))
    assert len([each for each in came if isinstance(each, TooManyMessages)]) == 5
    assert ScheduledMessage.objects.waiting().count() == MOST_WAITING


def test_one_call_made_twice_at_once_is_one_message(person: Person) -> None:
    session = person.session()
    turn = receive(session.pk, MessageInput(content="hello"))
    given = MessageToSchedule(
        session_id=session.pk, send_at=LATER, message_text="x", turn_id=turn.pk, tool_call_id="call-1"
    )
    came = at_once(*(lambda: schedule_message(given).message.pk for _ in range(4)))
    assert len(set(came)) == ScheduledMessage.objects.count() == 1


def test_beat_skips_a_session_being_deleted_without_waiting(person: Person) -> None:
    session, other = person.session(), person.session()
    held, free = later(session), later(other)
    due(held, free)
    with gate(session, KEY_SHARE) as door:  # the delete holds what is bound, and waits for the session
        door.start(lambda: delete_session(session.pk))
        thread, came = in_thread(fire_due_messages)
        thread.join(20)
        assert not thread.is_alive()
        assert (came[0].claimed, came[0].queued) == (1, 1)
        assert not Turn.objects.filter(session=session).exists()
        assert door.open()[0].deleted
    free.refresh_from_db()
    assert free.taken_at is not None
    assert orphans() == {}


def test_a_worker_killed_while_it_sends_sends_once(fleet: Fleet, person: Person) -> None:
    session = person.session()
    message = later(session)
    due(message)
    fire_due_messages()
    with gate(session, SHARE) as held:  # which lets the claim pass, and the commit wait
        worker = fleet.worker()
        until(waiting, 30, "the commit waits for its session")
        turn = Turn.objects.get(kind="scheduled_message")
        assert (turn.state, turn.attempt) == (TurnState.RUNNING, 1)
        worker.kill()
        held.open()
    fleet.worker()
    until(lambda: all_sent(1))
    turn.refresh_from_db()
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 2)
    assert said(session) == ["Take the cake out."]
    with pytest.raises(MessageSent):
        cancel_message(message.pk)
