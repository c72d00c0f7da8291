"""Scheduled messages for tests: made, made due, sent in this process."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from automations.firing.fire_messages import fire_due_messages
from automations.models import ScheduledMessage
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.models import Session, Turn, Worker
from sessions_app.turns.claim import claim_next
from sessions_app.turns.lock import Handle
from sessions_app.turns.run import _finish

LATER = "2099-01-01T09:00:00"


def later(session: Session, text: str = "Take the cake out.", **more: Any) -> ScheduledMessage:
    """One that waits for a far day."""
    given = {"send_at": LATER} | more
    return schedule_message(MessageToSchedule(session_id=session.pk, message_text=text, **given)).message


def due(*messages: ScheduledMessage, ago: float = 1) -> None:
    """They were due so many seconds ago, in this order."""
    now = datetime.now(UTC)
    for number, message in enumerate(messages):
        at = now - timedelta(seconds=ago) + timedelta(milliseconds=number)
        ScheduledMessage.objects.filter(pk=message.pk).update(send_at=at)


def taken(session: Session, text: str = "Take the cake out.", ago: float = 1) -> ScheduledMessage:
    """One that was due, and has its turn."""
    message = later(session, text)
    due(message, ago=ago)
    while fire_due_messages().claimed:
        pass
    return message


def status(message: ScheduledMessage) -> str:
    message.refresh_from_db()
    return message.status


def a_worker() -> uuid.UUID:
    """The id of one that is alive as far as the database knows."""
    return Worker.objects.create(id=uuid.uuid4(), host="here", pid=1).pk


def claimed(session: Session, worker: uuid.UUID | None = None) -> Turn:
    """The session's next turn, as a worker claims it."""
    turn = claim_next(session.pk, worker or a_worker(), auto_allowed=True)
    assert turn is not None
    return turn


def finish(turn: Turn) -> None:
    """Run a claimed turn to its end."""
    _finish(Handle(session_id=turn.session_id), turn)
    turn.refresh_from_db()


def run_turn(session: Session, worker: uuid.UUID | None = None) -> Turn:
    """The session's next turn, as a worker runs it."""
    turn = claimed(session, worker)
    finish(turn)
    return turn
