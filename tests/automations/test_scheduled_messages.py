"""Scheduled messages, rule by rule, on real rows (docs/scheduled-messages.md).

The turns are claimed and committed here, without a worker's process; tests/chaos has the processes.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from automations.fire_messages import fire_messages
from automations.models import ScheduledMessage
from automations.scheduled_messages import NewMessage, schedule_message
from sessions_app.claim import claim_next
from sessions_app.commit import commit
from sessions_app.context import prepare
from sessions_app.journal import Journal
from sessions_app.models import Session, Turn, Worker
from sessions_app.turn import _said
from tests.conftest import Person

pytestmark = pytest.mark.django_db(transaction=True)
LATER = "2099-01-01T09:00:00"


@pytest.fixture
def me(person: Person) -> uuid.UUID:
    return Worker.objects.create(id=uuid.uuid4(), host="here", pid=1).pk


def later(session: Session, text: str = "Take the cake out.", **more: Any) -> ScheduledMessage:
    given = {"send_at": LATER} | more
    return schedule_message(NewMessage(session_id=session.pk, message_text=text, **given)).message


def due(*messages: ScheduledMessage, ago: float = 1) -> None:
    """They were due so many seconds ago, the first one the longest."""
    for number, message in enumerate(messages):
        at = datetime.now(UTC) - timedelta(seconds=ago - number * 0.001)
        ScheduledMessage.objects.filter(pk=message.pk).update(send_at=at)


def run_turn(session: Session, me: uuid.UUID) -> Turn | None:
    turn = claim_next(session.pk, me, auto_allowed=True)
    if turn is None:
        return None
    prepared = prepare(turn, Journal(turn))
    result = _said(prepared)
    assert result is not None
    commit(prepared, result)
    return turn


def test_it_is_sent(person: Person, me: uuid.UUID) -> None:
    session = person.session()
    message = later(session)
    assert fire_messages().claimed == 0
    due(message)
    fired = fire_messages()
    assert (fired.claimed, fired.queued) == (1, 1)
    run_turn(session, me)
    message.refresh_from_db()
    assert message.status == "sent"
