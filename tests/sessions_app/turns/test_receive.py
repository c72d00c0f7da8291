"""Busy sessions: inject, enqueue, reject, interrupt; and the order of what waits (rules 1.3, 2)."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from agent_core import tools
from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from agent_core.tools import Effect, Tool
from agent_core.types import ToolCall
from sessions_app.exceptions import IdempotencyMismatch, SessionBusy, TurnEnded
from sessions_app.models import Lane, Message, OnBusy, Session, Turn, TurnKind, TurnState
from sessions_app.postgres.direct import connect_directly
from sessions_app.postgres.notify import EVENTS
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.receive import MessageInput, receive
from sessions_app.turns.tool_calls import MOST_GUESTS
from tests.agent_core.planner.plans import says
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside
from tests.stories.test_main_job import ended
from tests.talk import queue_turn

pytestmark = pytest.mark.rule("2.1", "2.2")

CALL_AND_WAIT = 'use tool wait with {"name": "gate"}'


def contents(session: Session, role: str) -> list[str]:
    rows = Message.objects.filter(session=session, role=role).order_by("seq")
    return [row.content for row in rows if row.content]


def automation(session: Session, name: str, slot: datetime, *, waited: float = 0.0) -> Turn:
    """A queued automation's turn, as firing leaves it, without its run."""
    return queue_turn(automation_turn(session, name, slot, waited=waited))


def automation_turn(session: Session, name: str, slot: datetime, *, waited: float = 0.0) -> Turn:
    """The same before it is stored."""
    about = {"automation_name": name, "automation_id": name, "timezone": "UTC", "seen": session.last_seq}
    return Turn(
        session=session,
        kind=TurnKind.AUTOMATION,
        lane=Lane.AUTO,
        content=name,
        on_busy=OnBusy.ENQUEUE,
        due_at=slot,
        queued_at=datetime.now(UTC) - timedelta(seconds=waited),
        origin_run=f"{name}:1",
        metadata=about | {"route": session.own_route},
    )


def test_a_message_is_injected_before_the_next_model_call(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    host = receive(session.pk, MessageInput(content=CALL_AND_WAIT))
    until((fleet.folder / "gate.calls").exists)
    guest = receive(session.pk, MessageInput(content="my favourite colour is green"))
    waiting = receive(session.pk, MessageInput(content="after you", on_busy=OnBusy.ENQUEUE))
    (fleet.folder / "gate.go").touch()
    until(lambda: ended(host) and ended(guest) and ended(waiting))
    assert (host.state, guest.state, waiting.state) == ("succeeded", "merged", "succeeded")
    assert guest.host_id == host.pk
    said = contents(session, "user")
    assert said == [CALL_AND_WAIT, "my favourite colour is green", "after you"]
    second_call = model_server.requests[1].body["messages"]
    assert second_call[-1]["content"] == "my favourite colour is green"


@pytest.mark.rule("10.0")
@pytest.mark.parametrize(
    ("messages", "taken"),
    [
        ([f"message {number}" for number in range(MOST_GUESTS + 3)], MOST_GUESTS),
        (["a" * 15_000, "b" * 4_000, "c" * 2_000, "short"], 2),
    ],
    ids=["number", "size"],
)
def test_a_turn_injects_messages_that_fit_and_queues_the_rest(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, messages: list[str], taken: int
) -> None:
    fleet.worker()
    session = person_with_server.session()
    host = receive(session.pk, MessageInput(content=CALL_AND_WAIT))
    until((fleet.folder / "gate.calls").exists)
    guests = [receive(session.pk, MessageInput(content=content)) for content in messages]
    (fleet.folder / "gate.go").touch()
    until(lambda: ended(host) and all(ended(guest) for guest in guests))
    assert [guest.host_id == host.pk for guest in guests] == [n < taken for n in range(len(guests))]
    assert {guest.state for guest in guests[:taken]} == {"merged"}
    assert guests[taken].state == "succeeded"
    assert contents(session, "user") == [CALL_AND_WAIT, *messages]


@pytest.mark.rule("10.0")
@pytest.mark.parametrize(
    ("each_time", "taken"), [(["a word"] * 12, MOST_GUESTS), (["a" * 9_000], 2)], ids=["number", "size"]
)
def test_the_injection_limit_applies_to_the_whole_turn(
    inside: Inside, each_time: list[str], taken: int
) -> None:
    session = inside.person.session()

    def listen(_context: Any, _arguments: Any) -> str:
        for text in each_time:
            receive(session.pk, MessageInput(content=text))
        return "heard"

    calls = [ToolCall(id=str(n), name="listen", arguments={"n": n}) for n in range(3)]
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools.register(
        Tool(name="listen", description="Listens.", parameters=schema, run=listen, effect=Effect.READ)
    )
    try:
        inside.model.answer_with(*(ModelReply(text="", calls=(call,)) for call in calls), says("Heard."))
        host = inside.say(session, "listen")
    finally:
        tools.unregister("listen")
    assert Turn.objects.filter(host=host).count() == taken
    assert contents(session, "user") == ["listen", *each_time * len(calls)]


def test_an_injected_message_survives_the_failure_of_its_host(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    host = receive(session.pk, MessageInput(content=CALL_AND_WAIT))
    until((fleet.folder / "gate.calls").exists)
    guest = receive(session.pk, MessageInput(content="[[fail:402]] hello"))
    (fleet.folder / "gate.go").touch()
    until(lambda: ended(host) and ended(guest))
    assert (host.state, guest.state) == ("failed", "failed")
    assert guest.host_id is None
    assert contents(session, "user") == [CALL_AND_WAIT, "[[fail:402]] hello"]


def test_nothing_is_injected_into_an_automation(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    running = automation(session, CALL_AND_WAIT, datetime.now(UTC))
    until((fleet.folder / "gate.calls").exists)
    person = receive(session.pk, MessageInput(content="hello"))
    scheduled = automation(session, "later", datetime.now(UTC))
    (fleet.folder / "gate.go").touch()
    until(lambda: ended(running) and ended(person) and ended(scheduled))
    assert [turn.state for turn in (running, person, scheduled)] == ["succeeded"] * 3
    assert person.started_at is not None
    assert running.finished_at is not None
    assert scheduled.started_at is not None
    assert running.finished_at <= person.started_at <= scheduled.started_at
    shown = [message["content"] for message in model_server.requests[1].body["messages"]]
    assert "hello" not in shown


def test_reject_refuses_while_anything_runs_or_waits(person: Person) -> None:
    session = person.session()
    receive(session.pk, MessageInput(content="first"))
    with pytest.raises(SessionBusy):
        receive(session.pk, MessageInput(content="second", on_busy=OnBusy.REJECT))
    assert Turn.objects.filter(session=session).count() == 1


def test_an_interrupt_keeps_partial_output_and_runs_next(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    with connect_directly(settings.DATABASE_LOCK_URL) as listening:
        listening.execute(f"LISTEN {EVENTS}")
        running = receive(session.pk, MessageInput(content="[[pause:p]] tell me a long story"))
        with closing(listening.notifies(timeout=30)) as notes:
            said_by_it = f'"turn": {running.pk},'
            assert any(said_by_it in note.payload and '"text"' in note.payload for note in notes)
    urgent = receive(session.pk, MessageInput(content="stop, listen", on_busy=OnBusy.INTERRUPT))
    until(lambda: ended(running) and ended(urgent))
    assert (running.state, urgent.state) == ("cancelled", "succeeded")
    said = list(Message.objects.filter(turn=running).order_by("seq"))
    assert [message.role for message in said] == ["user", "assistant", "assistant"]
    assert said[1].metadata["partial"] is True
    assert said[1].content
    assert said[2].content == "Stopped."


@pytest.mark.rule("1.11")
def test_cancel_ends_a_waiting_turn_and_asks_a_running_one(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    waiting = receive(session.pk, MessageInput(content="never mind"))
    assert cancel_turn(waiting.pk).state == TurnState.CANCELLED
    with pytest.raises(TurnEnded):
        cancel_turn(waiting.pk)
    fleet.worker()
    running = receive(session.pk, MessageInput(content="[[hold:h]] x"))
    until(lambda: model_server.held.get("h"))
    assert cancel_turn(running.pk).state == TurnState.RUNNING
    until(lambda: ended(running))
    assert running.state == TurnState.CANCELLED
    assert contents(session, "assistant") == ["Stopped."]


@pytest.mark.rule("1.3", "2.3")
def test_people_precede_slots_unless_a_slot_waited_too_long(fleet: Fleet, person: Person) -> None:
    session, now = person.session(), datetime.now(UTC)
    late = automation(session, "late", now - timedelta(seconds=1))
    early = automation(session, "early", now - timedelta(seconds=2))
    old = automation(session, "old", now - timedelta(hours=1), waited=settings.AUTOMATION_MAX_WAIT + 1)
    people = [
        receive(session.pk, MessageInput(content=f"p{number}", on_busy=OnBusy.ENQUEUE)) for number in range(2)
    ]
    fleet.worker()
    until(lambda: all(ended(turn) for turn in (late, early, old, *people)))
    order = list(
        Turn.objects.filter(session=session).order_by("started_at").values_list("content", flat=True)
    )
    assert order == ["old", "p0", "p1", "early", "late"]


def test_the_same_idempotency_key_is_one_turn(person: Person) -> None:
    session = person.session()
    first = receive(session.pk, MessageInput(content="once", idempotency_key="k"))
    again = receive(session.pk, MessageInput(content="once", idempotency_key="k"))
    assert first.pk == again.pk
    with pytest.raises(IdempotencyMismatch):
        receive(session.pk, MessageInput(content="other", idempotency_key="k"))
    assert Turn.objects.filter(session=session).count() == 1
