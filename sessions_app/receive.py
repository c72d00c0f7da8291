"""Receive: the one door for inputs. One QUEUED row, a hint after commit."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import Q, Subquery

from agent_core.planner.decide import is_clear
from sessions_app import cancel, events
from sessions_app.exceptions import BadInput, IdempotencyMismatch, NotFound, SessionBusy
from sessions_app.kinds import registered
from sessions_app.models import PRIMARY_KEY, Lane, OnBusy, Session, SessionType, Turn, TurnKind
from sessions_app.models.turn import OPEN_STATES
from sessions_app.patience import through_deadlocks
from sessions_app.unified import Entered, enter, must_be_open
from sessions_app.wake import wake

LONGEST_MESSAGE = 100_000  # characters
INTERNAL = frozenset({SessionType.HEARTBEAT, SessionType.JOB})


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input. `due_at` orders its lane: the slot of a scheduled input, None for now.

    `route` is where a person's answer goes, None for where the session's own go.
    """

    content: str
    kind: TurnKind = TurnKind.MESSAGE
    on_busy: OnBusy = OnBusy.INJECT
    metadata: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    due_at: datetime | None = None
    origin_run: str = ""
    origin_attempt: int = 0
    route: dict[str, Any] | None = None


def receive(session_id: uuid.UUID, given: Input) -> Turn:
    """Queue an input. The same idempotency key and content give the same turn.

    What a person says in a thread of a unified agent becomes a turn of the primary session.
    BadInput, NotFound, SessionClosed, SessionBusy (`on_busy` reject), IdempotencyMismatch.
    """
    _check(given)
    if given.kind == TurnKind.MESSAGE and given.on_busy == OnBusy.INJECT and is_clear(given.content):
        given = replace(given, on_busy=OnBusy.ENQUEUE)  # a command is no word to whoever is talking
    try:
        return through_deadlocks(lambda: _queue(session_id, given))
    except IntegrityError:
        if not Session.objects.filter(pk=session_id).exists():  # it was deleted under us
            raise NotFound("there is no such session") from None
        raise


@transaction.atomic
def _queue(session_id: uuid.UUID, given: Input) -> Turn:
    if given.idempotency_key and (earlier := _earlier(session_id, given.idempotency_key, given)):
        return earlier
    entered = enter(session_id)
    _for_people(entered.session, given)
    session = _fed(entered, given)
    if given.on_busy == OnBusy.REJECT and _busy(session.pk):
        raise SessionBusy
    turn = Turn(
        session_id=session.pk,
        kind=given.kind,
        lane=Lane.PEOPLE if given.kind == TurnKind.MESSAGE else Lane.AUTO,
        content=given.content,
        metadata=given.metadata | {"route": given.route or _route(entered.session)},
        on_busy=given.on_busy,
        idempotency_key=_key_in(session.pk, session_id, given.idempotency_key),
        origin_run=given.origin_run,
        origin_attempt=given.origin_attempt,
    )
    if given.due_at is not None:
        turn.due_at = given.due_at
    events.queued(turn, session.agent_id)
    if given.on_busy == OnBusy.INTERRUPT:
        cancel.interrupt(session.pk)
    wake(session.pk, turn.lane)
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


def _for_people(session: Session, given: Input) -> None:
    """What a person says would never be answered in a heartbeat's or a job's session: nobody reads there."""
    if given.kind == TurnKind.MESSAGE and session.type in INTERNAL:
        text = f"people talk in conversations; this session ({session.type}) is internal"
        raise BadInput(text, code="internal_session")


def _fed(entered: Entered, given: Input) -> Session:
    """The session whose turn it becomes: only what people say is unified.

    A delete that overtakes us makes the foreign key fail at our COMMIT, so no lock is needed for it.
    """
    target = entered.behind if given.kind == TurnKind.MESSAGE else entered.session.pk
    exclusive = given.on_busy in {OnBusy.REJECT, OnBusy.INTERRUPT}
    if target == entered.session.pk and not exclusive:
        return entered.session
    rows = Session.objects.filter(pk=target)
    return must_be_open((rows.select_for_update(no_key=True) if exclusive else rows).first())


def _busy(session_id: uuid.UUID) -> bool:
    return Turn.objects.filter(session_id=session_id, state__in=OPEN_STATES).exists()


def _route(session: Session) -> dict[str, Any]:
    return {"channel": session.channel, "chat_id": session.chat_id, "meta": session.channel_meta}


def _earlier(session_id: uuid.UUID, key: str, given: Input) -> Turn | None:
    """The turn that this key has become, also when the mode was toggled since.

    The lock lasts until our COMMIT: of two at once with one key the second finds what the first has written.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{session_id} {key}"])
    primary = Session.objects.filter(key=PRIMARY_KEY, agent__sessions=session_id).values("pk")
    said_here = Q(session_id=session_id, idempotency_key=key)
    said_behind = Q(session_id=Subquery(primary), idempotency_key=_key_from(session_id, key))
    turn = Turn.objects.filter(said_here | said_behind).first()
    if turn is None:
        return None
    if (turn.content, turn.kind, turn.on_busy) != (given.content, given.kind, given.on_busy):
        raise IdempotencyMismatch
    return turn


def _key_in(session_id: uuid.UUID, entered_id: uuid.UUID, key: str | None) -> str | None:
    """The key as the turn keeps it. Two threads that feed one session may use the same keys."""
    return key if key is None or session_id == entered_id else _key_from(entered_id, key)


def _key_from(entered_id: uuid.UUID, key: str) -> str:
    return f"{entered_id.hex}:{hashlib.sha256(key.encode()).hexdigest()}"
