"""A scheduled message to a chat outside: it is sent when the channel took it, and failed when that was given up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from automations.fire_messages import fire_messages
from automations.models import RunRecord, ScheduledMessage
from sessions_app import deliver
from sessions_app.channels import base
from sessions_app.channels.base import Parcel, Unsent
from sessions_app.delete import delete_session
from sessions_app.models import Delivery, Message, Session
from sessions_app.receive import Input, receive
from sessions_app.send import send_next
from sessions_app.wake import PostLane
from tests.automations.messages import a_worker, due, later, run_turn
from tests.conftest import Person
from tests.races import orphans

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(kw_only=True)
class Chat:
    """A channel of this process, which may be shut."""

    name: str = "chat"
    shut: bool = False
    taken: list[Parcel] = field(default_factory=list)

    def check(self, address: str) -> None:
        """Anything goes."""

    def place(self, address: str) -> str:
        return "chat"

    def send(self, parcel: Parcel) -> None:
        if self.shut:
            raise Unsent("the chat is gone", final=True)
        self.taken.append(parcel)


@pytest.fixture
def chat() -> Iterator[Chat]:
    channel = Chat()
    base.register(channel)
    yield channel
    base.unregister(channel.name)


@pytest.fixture
def me(person: Person) -> uuid.UUID:
    return a_worker()


def in_chat(person: Person, me: uuid.UUID) -> Session:
    """A session of the channel, in which its person wrote once; what was answered is delivered."""
    session: Session = person.session(key="chat:7", address="7")
    receive(session.pk, Input(content="Hello"))
    run_turn(session, me)
    deliver_all(session)
    return session


def deliver_all(session: Session) -> None:
    while send_next(PostLane(session_id=session.pk, channel="chat")):
        pass


def said_later(session: Session, me: uuid.UUID, text: str = "Take the cake out.") -> ScheduledMessage:
    message = later(session, text)
    due(message, ago=90)
    while fire_messages().claimed:
        pass
    run_turn(session, me)
    message.refresh_from_db()
    return message


def test_it_is_pending_until_the_channel_took_it(person: Person, me: uuid.UUID, chat: Chat) -> None:
    session = in_chat(person, me)
    message = said_later(session, me)
    sent = Message.objects.filter(session=session).latest("seq")
    assert (message.status, message.sent_at, message.sent_message_id) == ("pending", None, sent.pk)
    assert RunRecord.objects.get(scheduled_message=message).state == "succeeded"
    deliver_all(session)
    message.refresh_from_db()
    assert message.status == "sent"
    assert message.sent_at is not None
    parcel = chat.taken[-1]
    assert (parcel.text, parcel.address) == ("Take the cake out.", "7")
    assert parcel.about["late"] is True


def test_a_delivery_that_is_given_up_makes_it_fail_and_one_that_comes_through_later_sent(
    person: Person, me: uuid.UUID, chat: Chat
) -> None:
    session = in_chat(person, me)
    message = said_later(session, me)
    chat.shut = True
    deliver_all(session)
    message.refresh_from_db()
    assert (message.status, message.sent_at) == ("failed", None)
    assert "the chat is gone" in message.last_error
    chat.shut = False
    deliver.send_again(Delivery.objects.get(message=message.sent_message_id).pk)
    deliver_all(session)
    message.refresh_from_db()
    assert (message.status, message.last_error) == ("sent", "")


def test_of_what_may_not_be_sent_nothing_leaves(person: Person, me: uuid.UUID, chat: Chat) -> None:
    session = in_chat(person, me)
    before = len(chat.taken)
    message = later(session)
    due(message)
    fire_messages()
    Session.objects.filter(pk=session.pk).update(chat_type="group")
    run_turn(session, me)
    deliver_all(session)
    message.refresh_from_db()
    assert message.status == "failed"
    assert len(chat.taken) == before, "a group is told nothing of it"


def test_a_session_is_deleted_with_what_is_on_its_way(person: Person, me: uuid.UUID, chat: Chat) -> None:
    session = in_chat(person, me)
    said_later(session, me)
    assert delete_session(session.pk).deleted
    assert not ScheduledMessage.objects.exists()
    assert orphans() == {}
