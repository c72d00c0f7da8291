"""Receive: the one door for inputs. One QUEUED row, a hint after commit."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from sessions_app import cancel, events
from sessions_app.exceptions import BadInput, IdempotencyMismatch, NotFound, SessionBusy, SessionClosed
from sessions_app.kinds import registered
from sessions_app.models import EventType, Lane, OnBusy, Session, SessionState, Turn, TurnKind
from sessions_app.models.turn import OPEN_STATES
from sessions_app.patience import through_deadlocks
from sessions_app.wake import wake

LONGEST_MESSAGE = 100_000  # characters


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input. `due_at` orders its lane: the slot of a scheduled input, None for now."""

    content: str
    kind: TurnKind = TurnKind.MESSAGE
    on_busy: OnBusy = OnBusy.INJECT
    metadata: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    due_at: datetime | None = None
    origin_run: str = ""
    origin_attempt: int = 0


def receive(session_id: uuid.UUID, given: Input) -> Turn:
    """Queue an input of a session. The same idempotency key and content give the same turn.

    BadInput, NotFound, SessionClosed, SessionBusy (`on_busy` reject), IdempotencyMismatch.
    """
    _check(given)
    if given.idempotency_key and (earlier := _earlier(session_id, given)):
        return earlier
    try:
        return through_deadlocks(lambda: _queue(session_id, given))
    except IntegrityError:
        # the same key came a moment ago, or the session was deleted under us
        if given.idempotency_key and (earlier := _earlier(session_id, given)):
            return earlier
        if not Session.objects.filter(pk=session_id).exists():
            raise NotFound("there is no such session") from None
        raise


@transaction.atomic
def _queue(session_id: uuid.UUID, given: Input) -> Turn:
    session = _open_session(session_id, exclusive=given.on_busy in {OnBusy.REJECT, OnBusy.INTERRUPT})
    if given.on_busy == OnBusy.REJECT and _busy(session_id):
        raise SessionBusy
    turn = Turn(
        session_id=session_id,
        kind=given.kind,
        lane=Lane.PEOPLE if given.kind == TurnKind.MESSAGE else Lane.AUTO,
        content=given.content,
        metadata=given.metadata | {"route": _route(session)},
        on_busy=given.on_busy,
        idempotency_key=given.idempotency_key,
        origin_run=given.origin_run,
        origin_attempt=given.origin_attempt,
    )
    if given.due_at is not None:
        turn.due_at = given.due_at
    turn.save(force_insert=True)
    events.event(
        turn, session.agent_id, EventType.TURN_QUEUED, {"text": given.content, "kind": given.kind}
    ).save(force_insert=True)
    if given.on_busy == OnBusy.INTERRUPT:
        cancel.interrupt(session_id)
    events.announce(session_id)
    wake(session_id, turn.lane)
    return turn


def _check(given: Input) -> None:
    if given.kind not in registered():
        raise BadInput(f"no such kind of input: {given.kind}")
    if not given.content.strip():
        raise BadInput("the message is empty", code="empty_message")
    if len(given.content) > LONGEST_MESSAGE:
        raise BadInput(f"the message is longer than {LONGEST_MESSAGE} characters", code="message_too_long")
    if "\x00" in given.content:
        raise BadInput("the message holds a NUL character", code="bad_message")


def _open_session(session_id: uuid.UUID, *, exclusive: bool) -> Session:
    """The session. A delete that overtakes us makes the foreign key fail at our COMMIT, so no lock is needed."""
    rows = Session.objects.filter(pk=session_id)
    session = (rows.select_for_update(no_key=True) if exclusive else rows).first()
    if session is None:
        raise NotFound("there is no such session")
    if session.state != SessionState.OPEN:
        raise SessionClosed(f"the session is {session.state}")
    return session


def _busy(session_id: uuid.UUID) -> bool:
    return Turn.objects.filter(session_id=session_id, state__in=OPEN_STATES).exists()


def _route(session: Session) -> dict[str, Any]:
    return {"channel": session.channel, "chat_id": session.chat_id, "meta": session.channel_meta}


def _earlier(session_id: uuid.UUID, given: Input) -> Turn | None:
    turn = Turn.objects.filter(session_id=session_id, idempotency_key=given.idempotency_key).first()
    if turn is None:
        return None
    if (turn.content, turn.kind, turn.on_busy) != (given.content, given.kind, given.on_busy):
        raise IdempotencyMismatch
    return turn
