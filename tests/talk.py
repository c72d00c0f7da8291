"""Speaking in a session and waiting for the answer."""

from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Model

from sessions_app.hints import wake
from sessions_app.models import Message, Session, Turn
from sessions_app.queue import enqueue
from sessions_app.queue.receive import MessageInput, receive
from tests.fleet import until

Row = TypeVar("Row", bound=Model)


def fresh(row: Row) -> Row:
    """The row as it is stored now."""
    row.refresh_from_db()
    return row


def ended(turn: Turn) -> Turn | None:
    """The turn, once it has ended."""
    turn.refresh_from_db()
    return turn if turn.finished_at is not None else None


def say(session: Session, text: str, **more: Any) -> Turn:
    """A message, answered; the session is as it is then."""
    turn = receive(session.pk, MessageInput(content=text, **more))
    until(lambda: ended(turn))
    session.refresh_from_db()
    return turn


def last_said(session: Session) -> str:
    """What the agent said last."""
    return Message.objects.filter(session=session, role="assistant").latest("seq").content


def queue_turn(turn: Turn) -> Turn:
    """Queue a turn of any kind, and send its hint."""
    with transaction.atomic():
        enqueue.enqueue(turn)
        wake(turn.session_id, turn.lane)
    return turn
