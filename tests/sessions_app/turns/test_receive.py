"""Busy sessions: inject, enqueue, reject, interrupt; and the order of what waits (rules 1.3, 2)."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.conf import settings

from agent_core.exceptions import ModelRefused
from sessions_app.exceptions import TurnEnded
from sessions_app.models import Lane, Message, OnBusy, Session, Turn, TurnKind, TurnState
from sessions_app.postgres.connection import connect_directly
from sessions_app.postgres.notify import EVENTS
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.tool_calls import MOST_GUESTS
from tests.agent_core.planner.plans import says
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside, Reply, call, during, listening, makes
from tests.model_server import ModelServer
from tests.talk import ended, queue_turn

pytestmark = pytest.mark.rule("2.1", "2.2")


def contents(session: Session, role: str) -> list[str]:
    rows = Message.objects.filter(session=session, role=role).order_by("seq")
    return [row.content for row in rows if row.content]


def automation(session: Session, name: str, slot: datetime, *, waited: float = 0.0) -> Turn:
    """A queued automation's turn, as firing leaves it, without its run."""
    about = {"automation_name": name, "automation_id": name, "timezone": "UTC", "seen": session.last_seq}
    queued = {"due_at": slot, "queued_at": datetime.now(UTC) - timedelta(seconds=waited)}
    kind = {"kind": TurnKind.AUTOMATION, "lane": Lane.AUTO, "on_busy": OnBusy.ENQUEUE}
    fields = kind | queued | {"origin_run": f"{name}:1", "metadata": about | {"route": session.own_route}}
    return queue_turn(Turn(session=session, content=name, **fields))


def guests_of(inside: Inside, session: Session, messages: list[MessageInput], *then: Reply) -> list[Turn]:
    """The messages that come while the model is asked, and what it says then. The first turn is the host's."""
    came = [partial(receive, session.pk, message) for message in messages]
    inside.model.answer_with(during(lambda: [each() for each in came], makes(call("count", name="a"))), *then)
    inside.say(session, "look")
    return list(Turn.objects.filter(session=session).order_by("id"))


def test_a_message_is_injected_before_the_next_model_call(inside: Inside, session: Session) -> None:
    green, after = "my favourite colour is green", "after you"
    messages = [MessageInput(content=green), MessageInput(content=after, on_busy=OnBusy.ENQUEUE)]
    host, guest, waiting = guests_of(inside, session, messages)
    assert (host.state, guest.state, waiting.state) == ("succeeded", "merged", "succeeded")
    assert guest.host_id == host.pk
    assert contents(session, "user") == ["look", green, after]
    assert [inside.model.shown(number) for number in (1, 2)] == [green, after]


@pytest.mark.rule("10.0")
def test_a_turn_injects_messages_that_fit_and_queues_the_rest(inside: Inside) -> None:
    for messages, taken in (
        ([f"message {number}" for number in range(MOST_GUESTS + 3)], MOST_GUESTS),
        (["a" * 15_000, "b" * 4_000, "c" * 2_000, "short"], 2),
    ):
        session = inside.person.session()
        host, *guests = guests_of(inside, session, [MessageInput(content=each) for each in messages])
        assert [guest.host_id == host.pk for guest in guests] == [n < taken for n in range(len(guests))]
        assert {guest.state for guest in guests[:taken]} == {"merged"}
        assert guests[taken].state == "succeeded"
        assert contents(session, "user") == ["look", *messages]


@pytest.mark.rule("10.0")
def test_the_injection_limit_applies_to_the_whole_turn(inside: Inside) -> None:
    for each_time, taken in ((["a word"] * 12, MOST_GUESTS), (["a" * 9_000], 2)):
        session = inside.person.session()

        def listen(messages: list[str] = each_time, to: Session = session) -> None:
            for text in messages:
                receive(to.pk, MessageInput(content=text))

        inside.model.answer_with(*(makes(call("listen", str(n), n=n)) for n in range(3)), says("Heard."))
        with listening(listen):
            host = inside.say(session, "listen")
        assert Turn.objects.filter(host=host).count() == taken
        assert contents(session, "user") == ["listen", *each_time * 3]


def test_an_injected_message_survives_the_failure_of_its_host(inside: Inside, session: Session) -> None:
    refused = [ModelRefused("no quota")] * 2
    host, guest = guests_of(inside, session, [MessageInput(content="hello")], *refused)
    assert (host.state, guest.state) == ("failed", "failed")
    assert guest.host_id is None
    assert contents(session, "user") == ["look", "hello"]


def test_nothing_is_injected_into_an_automation(inside: Inside, session: Session) -> None:
    running = automation(session, "look", datetime.now(UTC))

    def come() -> None:
        receive(session.pk, MessageInput(content="hello"))
        automation(session, "later", datetime.now(UTC))

    inside.run(session, during(come, makes(call("count", name="a"))))
    order = Turn.objects.filter(session=session).order_by("started_at")
    expected = [(text, "succeeded", None) for text in ("look", "hello", "later")]
    assert [(turn.content, turn.state, turn.host_id) for turn in order] == expected
    assert order[0].pk == running.pk
    assert "hello" not in [entry.content for entry in inside.model.calls[1].entries]


@pytest.mark.rule("1.11")
def test_an_interrupt_and_a_cancel_reach_the_turn_that_runs(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """The first keeps what was said so far, and its own message runs next."""
    session, other = person_with_server.session(), person_with_server.session()
    waiting = receive(session.pk, MessageInput(content="never mind"))
    assert cancel_turn(waiting.pk).state == TurnState.CANCELLED
    with pytest.raises(TurnEnded):
        cancel_turn(waiting.pk)
    fleet.worker()
    held = receive(other.pk, MessageInput(content="[[hold:h]] x"))
    with connect_directly(settings.DATABASE_LOCK_URL) as listening_to:
        listening_to.execute(f"LISTEN {EVENTS}")
        running = receive(session.pk, MessageInput(content="[[pause:p]] tell me a long story"))
        with closing(listening_to.notifies(timeout=30)) as notes:
            said_by_it = f'"turn": {running.pk},'
            assert any(said_by_it in note.payload and '"text"' in note.payload for note in notes)
    urgent = receive(session.pk, MessageInput(content="stop, listen", on_busy=OnBusy.INTERRUPT))
    until(lambda: model_server.held.get("h"))
    assert cancel_turn(held.pk).state == TurnState.RUNNING
    until(lambda: ended(running) and ended(urgent) and ended(held))
    assert (running.state, urgent.state, held.state) == ("cancelled", "succeeded", "cancelled")
    said = list(Message.objects.filter(turn=running).order_by("seq"))
    assert [message.role for message in said] == ["user", "assistant", "assistant"]
    assert said[1].metadata["partial"] is True
    assert said[1].content
    assert said[2].content == "Stopped."
    assert contents(other, "assistant") == ["Stopped."]


@pytest.mark.rule("1.3", "2.3")
def test_people_precede_slots_unless_a_slot_waited_too_long(inside: Inside) -> None:
    session, now = inside.person.session(), datetime.now(UTC)
    automation(session, "late", now - timedelta(seconds=1))
    automation(session, "early", now - timedelta(seconds=2))
    automation(session, "old", now - timedelta(hours=1), waited=settings.AUTOMATION_MAX_WAIT + 1)
    for number in range(2):
        receive(session.pk, MessageInput(content=f"p{number}", on_busy=OnBusy.ENQUEUE))
    inside.run(session)
    order = Turn.objects.filter(session=session).order_by("started_at").values_list("content", flat=True)
    assert list(order) == ["old", "p0", "p1", "early", "late"]
