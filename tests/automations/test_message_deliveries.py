"""A scheduled message to a chat outside: it is sent when the channel took it, and failed when that was given up."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from agent_core.types import Role
from automations.models import RunRecord, ScheduledMessage
from sessions_app.channels import base
from sessions_app.channels.base import Parcel, Unsent
from sessions_app.deliveries import outbox
from sessions_app.deliveries.send import send_next
from sessions_app.hints import DeliveryLane
from sessions_app.journal import Journal
from sessions_app.models import Delivery, Message, Session
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import change_chat
from sessions_app.turns.context import prepare_turn
from tests.automations.messages import claimed, finish, run_turn, status, taken
from tests.automations.turn_kinds.test_bound import bound, fire
from tests.conftest import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("8.2")]


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


def in_chat(person: Person) -> Session:
    """A session of the channel, in which its person wrote once; what was answered is delivered."""
    session: Session = person.session(key="chat:7", address="7")
    receive(session.pk, MessageInput(content="Hello"))
    run_turn(session)
    deliver_all(session)
    return session


def deliver_all(session: Session) -> None:
    while send_next(DeliveryLane(session_id=session.pk, channel="chat")):
        pass


def said_later(session: Session) -> ScheduledMessage:
    message = taken(session, ago=90)
    run_turn(session)
    message.refresh_from_db()
    return message


def test_the_message_status_follows_its_delivery(person: Person, chat: Chat) -> None:
    session = in_chat(person)
    message = said_later(session)
    sent = Message.objects.filter(session=session).latest("seq")
    assert (message.status, message.sent_at, message.sent_message_id) == ("pending", None, sent.pk)
    assert RunRecord.objects.get(scheduled_message=message).state == "succeeded"
    deliver_all(session)
    assert status(message) == "sent"
    assert message.sent_at is not None
    parcel = chat.taken[-1]
    assert (parcel.text, parcel.address, parcel.about["late"]) == ("Take the cake out.", "7", True)
    message = said_later(session)
    chat.shut = True
    deliver_all(session)
    assert (status(message), message.sent_at) == ("failed", None)
    assert "the chat is gone" in message.last_error
    chat.shut = False
    outbox.send_again(Delivery.objects.get(message=message.sent_message_id).pk)
    deliver_all(session)
    assert (status(message), message.last_error) == ("sent", "")


def seen_by_the_model(session: Session) -> list[str]:
    """The answers in what the next turn's model is shown."""
    receive(session.pk, MessageInput(content="What did you tell me?"))
    turn = claimed(session)
    prepared = prepare_turn(turn, Journal(turn))
    finish(turn)
    deliver_all(session)
    return [entry.content for entry in prepared.request.history if entry.role is Role.ASSISTANT]


@pytest.mark.rule("9.3")
def test_the_model_sees_which_answers_were_not_delivered(person: Person, chat: Chat) -> None:
    session = in_chat(person)
    chat.shut = True
    message = said_later(session)
    deliver_all(session)
    chat.shut = False
    lost = "[Not delivered: this did not reach chat. The person has not received it there.]"
    hello, late = seen_by_the_model(session)
    assert "[" not in hello, "what arrived is shown as it was said"
    assert late == f"Take the cake out.\n\n{lost}"
    message.refresh_from_db()
    outbox.send_again(Delivery.objects.get(message=message.sent_message_id).pk)
    again = "[Not delivered yet: sending this to chat failed. It is being sent again.]"
    assert seen_by_the_model(session)[1] == f"Take the cake out.\n\n{again}"
    arrived = "[Delivered late: sending this to chat failed at first. It was sent again and arrived.]"
    assert seen_by_the_model(session)[1] == f"Take the cake out.\n\n{arrived}"
    delivery = Delivery.objects.filter(message=message.sent_message_id)
    delivery.update(state="failed", last_error="x", ended_at=None)
    delivery.close("closed by an operator")
    assert seen_by_the_model(session)[1].endswith(lost)
    stored = Message.objects.get(scheduled_message=message)
    assert (stored.content, stored.model_content) == ("Take the cake out.", None), "people see what was said"


@pytest.mark.rule("4.9")
def test_scheduled_output_carries_the_chats_current_metadata(person: Person, chat: Chat) -> None:
    tea = {"thread": 12, "topic": "tea"}
    session: Session = person.session(channel="chat", address="7", channel_meta=tea)
    fire(bound(session))
    run_turn(session)
    deliver_all(session)
    assert (chat.taken[-1].address, chat.taken[-1].meta) == ("7", tea)
    receive(session.pk, MessageInput(content="Hello"))
    run_turn(session)
    chat.shut = True
    receive(session.pk, MessageInput(content="waits"))
    change_chat(session.pk, channel_meta={"thread": 13})
    session.refresh_from_db()
    assert (session.last_route or {})["meta"] == {"thread": 13}, "where a person last wrote is the same chat"
    chat.shut = False
    deliver_all(session)
    assert chat.taken[-1].meta == {"thread": 13}, "what was still here"
    run_turn(session)
    deliver_all(session)
    assert chat.taken[-1].meta == {"thread": 13}, "the answer to what waited"
