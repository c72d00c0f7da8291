"""The mailbox: shown with a person's turn, acknowledged by its commit, by that alone (rules 1.9, 6.2)."""

import uuid
from datetime import UTC, datetime

import pytest
from django.db.models.functions import Now

from agent_core.exceptions import ModelRefused
from sessions_app.journal import Journal
from sessions_app.mailbox import updates
from sessions_app.models import MailboxEvent, Message, Session, Turn
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.context import prepare_turn
from tests.inside import Inside
from tests.sessions_app.turns.test_receive import automation
from tests.talk import fresh

pytestmark = pytest.mark.rule("6.2")


def deposit(session: Session, summary: str, **fields: object) -> MailboxEvent:
    return MailboxEvent.objects.create(target=session, event_type="job_completed", summary=summary, **fields)


def acknowledged_by(event: MailboxEvent) -> int | None:
    assert (fresh(event).acknowledged_at is None) == (event.acknowledged_by_id is None)
    return event.acknowledged_by_id


def begun(session: Session) -> Turn:
    """A turn that a stopping worker handed back after its first step: it shows what was unread then."""
    turn = receive(session.pk, MessageInput(content="hello"))
    claimed = claim_next(session.pk, uuid.uuid4(), auto_allowed=True)
    assert claimed is not None
    prepare_turn(claimed, Journal(claimed))
    assert Turn.objects.hand_back(claimed)
    return turn


def test_updates_are_shown_urgent_first_and_acknowledged_by_the_commit(inside: Inside) -> None:
    session = inside.person.session()
    events = [deposit(session, "the build is green"), deposit(session, "the disk is full", priority=2)]
    turn = inside.say(session, "hello")
    asked, _ = Message.objects.filter(session=session).order_by("seq")
    assert asked.content == "hello"
    assert asked.model_content is not None
    assert asked.model_content == inside.model.shown()
    urgent, other = map(asked.model_content.index, ("the disk is full", "the build is green"))
    assert urgent < other, "how they are written: tests/agent_core/test_strategies.py"
    assert [acknowledged_by(event) for event in events] == [turn.pk] * 2
    following = inside.say(session, "anything else?")
    assert Message.objects.get(turn=following, role="user").model_content is None


def test_a_failed_and_a_cancelled_turn_acknowledge_nothing(inside: Inside, session: Session) -> None:
    event = deposit(session, "news")
    assert inside.say(session, "hello", ModelRefused("no credit")).state == "failed"
    assert "news" in inside.model.shown()
    assert acknowledged_by(event) is None
    cancelled = begun(session)
    cancel_turn(cancelled.pk)
    inside.run(session)
    assert (fresh(cancelled).state, acknowledged_by(event)) == ("cancelled", None)
    good = inside.say(session, "hello again")
    assert "news" in inside.model.shown()
    assert acknowledged_by(event) == good.pk


@pytest.mark.rule("6.1")
def test_a_resumed_turn_acknowledges_just_what_it_showed_and_was_not_dropped(inside: Inside) -> None:
    session = inside.person.session()
    early, replaced = deposit(session, "early news"), deposit(session, "old news")
    turn = begun(session)
    late = deposit(session, "late news")
    MailboxEvent.objects.filter(pk=replaced.pk).update(dropped_at=Now(), reason=updates.SUPERSEDED)
    inside.run(session)
    assert fresh(turn).state == "succeeded"
    assert [acknowledged_by(event) for event in (early, late, replaced)] == [turn.pk, None, None]
    assert "early news" in inside.model.shown()
    assert "late news" not in inside.model.shown()


def test_automations_do_not_drain_the_mailbox(inside: Inside, session: Session) -> None:
    event = deposit(session, "for people")
    turn = automation(session, "check", datetime.now(UTC))
    inside.run(session)
    assert (fresh(turn).state, acknowledged_by(event)) == ("succeeded", None)
    assert "for people" not in inside.model.shown()
