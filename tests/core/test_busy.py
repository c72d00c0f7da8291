"""Busy sessions: inject, enqueue, reject, interrupt; and the order of what waits (rules 1.3, 2)."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings

from agent_core.testing import ModelServer
from sessions_app.cancel import cancel_turn
from sessions_app.exceptions import IdempotencyMismatch, SessionBusy, TurnEnded
from sessions_app.lock import connect_directly
from sessions_app.models import Message, OnBusy, Session, Turn, TurnKind, TurnState
from sessions_app.publish import EVENTS
from sessions_app.receive import Input, receive
from tests.conftest import Person
from tests.core.test_main_job import ended
from tests.fleet import Fleet, until

CALL_AND_WAIT = 'use tool wait with {"name": "gate"}'


def contents(session: Session, role: str) -> list[str]:
    rows = Message.objects.filter(session=session, role=role).order_by("seq")
    return [row.content for row in rows if row.content]


def automation(session: Session, name: str, slot: datetime, *, waited: float = 0.0) -> Turn:
    """A queued automation's turn, as firing leaves it, without its run."""
    turn = receive(
        session.pk,
        Input(
            kind=TurnKind.AUTOMATION,
            content=name,
            on_busy=OnBusy.ENQUEUE,
            due_at=slot,
            origin_run=f"{name}:1",
            metadata={"automation_name": name, "automation_id": name, "timezone": "UTC"},
        ),
    )
    Turn.objects.filter(pk=turn.pk).update(queued_at=datetime.now(UTC) - timedelta(seconds=waited))
    return turn


def test_a_message_is_injected_before_the_next_model_call_and_ends_with_its_host(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    host = receive(session.pk, Input(content=CALL_AND_WAIT))
    until((fleet.folder / "gate.calls").exists)
    guest = receive(session.pk, Input(content="my favourite colour is green"))
    waiting = receive(session.pk, Input(content="after you", on_busy=OnBusy.ENQUEUE))
    (fleet.folder / "gate.go").touch()
    until(lambda: ended(host) and ended(guest) and ended(waiting))
    assert (host.state, guest.state, waiting.state) == ("succeeded", "merged", "succeeded")
    assert guest.host_id == host.pk
    said = contents(session, "user")
    assert said == [CALL_AND_WAIT, "my favourite colour is green", "after you"]
    second_call = model_server.requests[1].body["messages"]
    assert second_call[-1]["content"] == "my favourite colour is green"


def test_a_message_is_not_lost_when_its_host_fails_after_taking_it_along(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    host = receive(session.pk, Input(content=CALL_AND_WAIT))
    until((fleet.folder / "gate.calls").exists)
    guest = receive(session.pk, Input(content="[[fail:402]] hello"))
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
    person = receive(session.pk, Input(content="hello"))
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
    receive(session.pk, Input(content="first"))
    with pytest.raises(SessionBusy):
        receive(session.pk, Input(content="second", on_busy=OnBusy.REJECT))
    assert Turn.objects.filter(session=session).count() == 1


def test_an_interrupt_ends_the_running_turn_with_what_was_said_and_goes_next(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    with connect_directly(settings.DATABASE_LOCK_URL) as listening:
        listening.execute(f"LISTEN {EVENTS}")
        running = receive(session.pk, Input(content="[[pause:p]] tell me a long story"))
        with closing(listening.notifies(timeout=30)) as notes:
            assert any('"text"' in note.payload for note in notes), "the first words were said"
    urgent = receive(session.pk, Input(content="stop, listen", on_busy=OnBusy.INTERRUPT))
    until(lambda: ended(running) and ended(urgent))
    assert (running.state, urgent.state) == ("cancelled", "succeeded")
    said = list(Message.objects.filter(turn=running).order_by("seq"))
    assert [message.role for message in said] == ["user", "assistant", "assistant"]
    assert said[1].metadata["partial"] is True
    assert said[1].content
    assert said[2].content == "Stopped."


def test_cancel_ends_a_waiting_turn_at_once_and_asks_a_running_one(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    waiting = receive(session.pk, Input(content="never mind"))
    assert cancel_turn(waiting.pk).state == TurnState.CANCELLED
    with pytest.raises(TurnEnded):
        cancel_turn(waiting.pk)
    fleet.worker()
    running = receive(session.pk, Input(content="[[hold:h]] x"))
    until(lambda: model_server.held.get("h"))
    assert cancel_turn(running.pk).state == TurnState.RUNNING
    until(lambda: ended(running))
    assert running.state == TurnState.CANCELLED
    assert contents(session, "assistant") == ["Stopped."]


def test_people_go_first_then_slots_in_order_but_what_waited_too_long_goes_before(
    fleet: Fleet, person: Person
) -> None:
    session, now = person.session(), datetime.now(UTC)
    late = automation(session, "late", now - timedelta(seconds=1))
    early = automation(session, "early", now - timedelta(seconds=2))
    old = automation(session, "old", now - timedelta(hours=1), waited=settings.AUTOMATION_MAX_WAIT + 1)
    people = [receive(session.pk, Input(content=f"p{number}", on_busy=OnBusy.ENQUEUE)) for number in range(2)]
    fleet.worker()
    until(lambda: all(ended(turn) for turn in (late, early, old, *people)))
    order = list(
        Turn.objects.filter(session=session).order_by("started_at").values_list("content", flat=True)
    )
    assert order == ["old", "p0", "p1", "early", "late"]


def test_the_same_idempotency_key_is_one_turn(person: Person) -> None:
    session = person.session()
    first = receive(session.pk, Input(content="once", idempotency_key="k"))
    again = receive(session.pk, Input(content="once", idempotency_key="k"))
    assert first.pk == again.pk
    with pytest.raises(IdempotencyMismatch):
        receive(session.pk, Input(content="other", idempotency_key="k"))
    assert Turn.objects.filter(session=session).count() == 1
