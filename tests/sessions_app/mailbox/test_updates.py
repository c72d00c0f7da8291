"""The mailbox: shown with a person's turn, acknowledged by its commit, by that alone (rules 1.9, 6.2)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_core.testing import ModelServer
from agent_core.text import fence
from sessions_app.mailbox import updates
from sessions_app.mailbox.updates import MOST_EVENTS, Mail
from sessions_app.models import MailboxEvent, Message, Priority, Session, Turn
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.sessions_app.turns.test_receive import automation
from tests.stories.test_main_job import ended

pytestmark = pytest.mark.rule("6.2")


def deposit(session: Session, summary: str, **fields: object) -> MailboxEvent:
    return MailboxEvent.objects.create(target=session, event_type="job_completed", summary=summary, **fields)


def test_updates_are_shown_urgent_first_and_acknowledged_by_the_commit(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    session = person.session()
    deposit(session, "the build is green")
    deposit(session, "the disk is full", priority=2, detail="df says:\n100 %")
    turn = receive(session.pk, MessageInput(content="hello"))
    until(lambda: ended(turn))
    asked, answer = Message.objects.filter(session=session).order_by("seq")
    assert asked.content == "hello"
    assert asked.model_content == (
        "## Background Updates\n"
        + fence.fenced(
            "updates",
            "- [job_completed] the disk is full\n  Detail: df says:\n    100 %\n"
            "- [job_completed] the build is green",
        )
        + "\n\nhello"
    )
    assert "the disk is full" in answer.content
    events = MailboxEvent.objects.all()
    assert {event.acknowledged_by_id for event in events} == {turn.pk}
    following = receive(session.pk, MessageInput(content="anything else?"))
    until(lambda: ended(following))
    assert Message.objects.get(turn=following, role="user").model_content is None


def test_a_failed_turn_acknowledges_nothing(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    event = deposit(session, "news")
    failed = receive(session.pk, MessageInput(content="[[fail:402]] hello"))
    until(lambda: ended(failed))
    event.refresh_from_db()
    assert (failed.state, event.acknowledged_at) == ("failed", None)
    good = receive(session.pk, MessageInput(content="hello again"))
    until(lambda: ended(good))
    event.refresh_from_db()
    assert event.acknowledged_by_id == good.pk


@pytest.mark.rule("6.1")
def test_a_resumed_turn_acknowledges_just_what_it_showed(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    shown = deposit(session, "early news")
    worker = fleet.worker()
    turn = receive(session.pk, MessageInput(content="[[hold:h]] hello"))
    until(lambda: model_server.held.get("h"))
    late = deposit(session, "late news")
    worker.kill()
    fleet.worker()
    until(lambda: len(model_server.requests) == 2)
    model_server.release("h")
    until(lambda: ended(turn))
    shown.refresh_from_db()
    late.refresh_from_db()
    assert shown.acknowledged_by_id == turn.pk
    assert late.acknowledged_at is None
    first, second = (request.body["messages"][-1]["content"] for request in model_server.requests)
    assert first == second


def test_a_cancelled_turn_acknowledges_nothing(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    session = person_with_server.session()
    event = deposit(session, "news")
    turn = receive(session.pk, MessageInput(content="[[pause:p]] hello"))
    until(lambda: model_server.held.get("p"))
    cancel_turn(turn.pk)
    until(lambda: ended(turn))
    event.refresh_from_db()
    assert (turn.state, event.acknowledged_at) == ("cancelled", None)
    following = receive(session.pk, MessageInput(content="hello again"))
    until(lambda: ended(following))
    event.refresh_from_db()
    assert event.acknowledged_by_id == following.pk
    assert "news" in (Message.objects.get(turn=following, role="user").model_content or "")


def test_a_backlog_is_shown_over_turns_once_and_urgent_first(fleet: Fleet, person: Person) -> None:
    session = person.session()
    count = MOST_EVENTS + 5
    for number in range(count):
        mail = Mail(
            event_type="job_completed",
            summary=f"update {number};",
            detail="in\nlines",
            source_key=f"source {number}",
            artifacts=(f"{number}.md", f"{number}.png"),
            priority=Priority.URGENT if number == count - 1 else Priority.NORMAL,
        )
        assert updates.deposit(session.pk, mail)
    fleet.worker()
    told = []
    for _ in range(3):
        turn = receive(session.pk, MessageInput(content="what is new?"))
        until(lambda: ended(turn))  # noqa: B023 - called at once
        asked = Message.objects.get(turn=turn, role="user")
        assert asked.content == "what is new?"
        told.append(asked.model_content or "")
    assert [text.count("- [job_completed] ") for text in told] == [MOST_EVENTS, 5, 0]
    first = f"update {count - 1};\n  Detail: in\n    lines\n  Artifacts: {count - 1}.md, {count - 1}.png\n"
    assert fence.without_fences(told[0]).startswith(f"## Background Updates\n- [job_completed] {first}")
    assert all("".join(told).count(f"update {number};") == 1 for number in range(count))
    assert not updates.unread().exists()


def test_automations_do_not_drain_the_mailbox(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    session = person.session()
    event = deposit(session, "for people")
    turn: Turn = automation(session, "check", datetime.now(UTC))
    until(lambda: ended(turn))
    event.refresh_from_db()
    assert event.acknowledged_at is None
