"""Receive messages: store one queued turn, and send a hint after the commit. Turns of slots begin in `automations`."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, Subquery

from agent_core.execution import WAITING
from agent_core.planner.decide import is_clear
from sessions_app import metrics
from sessions_app.exceptions import BadInput, IdempotencyMismatch, NotFound, SessionBusy, TooManyWaiting
from sessions_app.hints import wake
from sessions_app.memory.files import GivenFile, digest_of, store_files
from sessions_app.models import (
    PRIMARY_KEY,
    ConsentQuestion,
    ConsentState,
    ExecutionState,
    Lane,
    OnBusy,
    Session,
    SessionType,
    Turn,
    TurnInput,
    TurnKind,
)
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import lock_until_commit
from sessions_app.queue import cancel, enqueue
from sessions_app.queue.threads import MOST_WAITING, addressed_session, must_be_open

LONGEST_MESSAGE = 100_000  # characters
MOST_OF_STRANGERS = (
    20  # queued messages above which no more posts are accepted, so that people do not wait for them
)
EXCLUSIVE = frozenset({OnBusy.REJECT, OnBusy.INTERRUPT})  # these lock the session
INTERNAL = frozenset({SessionType.HEARTBEAT, SessionType.JOB})


@dataclass(frozen=True, kw_only=True)
class MessageInput:
    """A message. `about`: what is known of it; without a route the answer goes to the session's own address.

    One with `files` becomes a turn of its own: nothing injects them.
    """

    content: str
    on_busy: OnBusy = OnBusy.INJECT
    about: TurnInput = field(default_factory=TurnInput)
    idempotency_key: str | None = None
    files: tuple[GivenFile, ...] = ()


def program_message(content: str, idempotency_key: str | None = None, **about: Any) -> MessageInput:
    """A message that a program wrote for its user: it becomes a turn of its own, and is never consent (rule 3.5)."""
    return MessageInput(
        content=content,
        on_busy=OnBusy.ENQUEUE,
        about=TurnInput(by_program=True, **about),
        idempotency_key=idempotency_key,
    )


def receive(session_id: uuid.UUID, given: MessageInput, owner_id: int | None = None) -> Turn:
    """Queue a message. The same idempotency key, content and files return the same turn.

    A message to a thread of a unified agent becomes a turn of the primary session. With `owner_id`, a session of
    another user is not found.
    BadInput, NotFound, SessionClosed, OwnerInactive, StorageFull, SessionBusy (`on_busy` reject), TooManyWaiting,
    IdempotencyMismatch.
    """
    _check(given)
    if given.on_busy == OnBusy.INJECT and (is_clear(given.content) or given.files):
        given = replace(given, on_busy=OnBusy.ENQUEUE)  # neither may be injected into a running turn
    try:
        return retry_deadlocks(lambda: _transact(session_id, given, owner_id))
    except TooManyWaiting:
        # outside the transaction, which was rolled back
        metrics.count(metrics.Counted.QUEUE_FULL, queue="session")
        raise
    except IntegrityError:
        if not Session.objects.filter(pk=session_id).exists():  # it was deleted meanwhile
            raise NotFound("there is no such session") from None
        raise


def _transact(session_id: uuid.UUID, given: MessageInput, owner_id: int | None) -> Turn:
    """Queue the message in a transaction. Where nothing is locked, the statement that stores the turn is enough."""
    if given.idempotency_key is None and given.on_busy not in EXCLUSIVE and not given.files:
        return _queue(session_id, given, owner_id)
    with transaction.atomic():
        if given.idempotency_key is not None:
            # of two concurrent requests with one key the second sees the turn of the first
            lock_until_commit(f"{session_id} {given.idempotency_key}")
        return _queue(session_id, given, owner_id)


def _queue(session_id: uuid.UUID, given: MessageInput, owner_id: int | None) -> Turn:
    if given.idempotency_key is not None and (earlier := _earlier(session_id, given, owner_id)):
        return earlier
    addressed = addressed_session(session_id, owner_id)
    _check_not_internal(addressed)
    _check_room(addressed, given)
    session = _target_session(addressed, given)
    if given.on_busy == OnBusy.REJECT and _is_busy(session.pk):
        raise SessionBusy
    turn = Turn(
        session_id=session.pk,
        kind=TurnKind.MESSAGE,
        lane=Lane.PEOPLE,
        content=given.content,
        metadata=replace(
            given.about,
            message=given.about.message | (store_files(session, given.files) if given.files else {}),
            files=digest_of(given.files),
            route=given.about.route or addressed.own_route,
            seen=session.last_seq,
            command="clear" if _is_clear_command(session, given) else "",
            request=structlog.contextvars.get_contextvars().get("request", ""),
        ).to_json(),
        on_busy=given.on_busy,
        idempotency_key=_key_in(session.pk, session_id, given.idempotency_key),
    )
    enqueue.enqueue(turn)
    if given.on_busy == OnBusy.INTERRUPT:
        cancel.interrupt(session.pk)
    _wake(turn)
    return turn


def _wake(turn: Turn) -> None:
    """Send a hint, unless another message waits in the session, whose hint is on its way or whose turn looks behind it.

    A statement of its own commits at once, long before that turn could end and look. A transaction may last longer.
    """
    if connection.in_atomic_block or not turn.is_behind:
        wake(turn.session_id, turn.lane)


def _is_clear_command(session: Session, given: MessageInput) -> bool:
    """Whether the message is a command to clear the conversation. While a question waits, only `/clear` is."""
    if not is_clear(given.content):
        return False
    if given.about.execution or given.about.question:
        return False
    return is_clear(given.content, waits=True) or not _question_waits(session.pk)


def _question_waits(session_id: uuid.UUID) -> bool:
    asked = ConsentQuestion.objects.filter(
        session_id=session_id, execution="", state=ConsentState.OPEN, expires_at=None
    )
    return asked.exists() or ExecutionState.objects.filter(session_id=session_id, status__in=WAITING).exists()


def _check(given: MessageInput) -> None:
    if not given.content.strip():
        raise BadInput("the message is empty", code="empty_message")
    if len(given.content) > LONGEST_MESSAGE:
        raise BadInput(f"the message is longer than {LONGEST_MESSAGE} characters", code="message_too_long")
    if "\x00" in given.content:
        raise BadInput("the message contains a NUL character", code="bad_message")


def _check_not_internal(session: Session) -> None:
    """Refuse messages in heartbeat and job sessions, where nobody reads the answer."""
    if session.type in INTERNAL:
        text = f"this session is internal (type {session.type}) and takes no messages; use a conversation"
        raise BadInput(text, code="internal_session")


def _check_room(session: Any, given: MessageInput) -> None:
    """TooManyWaiting. Messages that arrive at the same instant do not see each other and may exceed the limit."""
    posted_by = given.about.posted_by
    is_strangers = posted_by is not None and not posted_by.as_person
    most = MOST_OF_STRANGERS if is_strangers else MOST_WAITING
    if session.waiting >= most:
        raise TooManyWaiting(f"{most} messages already wait in this session; send it later")


def _target_session(addressed: Any, given: MessageInput) -> Session:
    """Return the session that gets the turn; in unified mode, a thread's messages go to the primary session.

    A concurrent delete needs no lock here: it makes the foreign key fail at COMMIT.
    """
    exclusive = given.on_busy in EXCLUSIVE
    if addressed.target_id == addressed.pk and not exclusive:
        return addressed  # type: ignore[no-any-return]
    rows = Session.objects.filter(pk=addressed.target_id)
    return must_be_open((rows.select_for_update(no_key=True) if exclusive else rows).first())


def _is_busy(session_id: uuid.UUID) -> bool:
    return Turn.objects.filter(session_id=session_id, state__in=OPEN_STATES).exists()


def _earlier(session_id: uuid.UUID, given: MessageInput, owner_id: int | None) -> Turn | None:
    """The turn that was stored with the same key, even if unified mode was toggled since. IdempotencyMismatch."""
    key = given.idempotency_key or ""
    primary = Session.objects.filter(key=PRIMARY_KEY, agent__sessions=session_id).values("pk")[:1]
    said_here = Q(session_id=session_id, idempotency_key=key)
    said_in_primary = Q(session_id=Subquery(primary), idempotency_key=_key_from(session_id, key))
    turns = Turn.objects.filter(said_here | said_in_primary)
    turn = (turns if owner_id is None else turns.filter(owner_id=owner_id)).order_by().first()
    if turn is None:
        return None
    if (turn.content, turn.kind, turn.on_busy) != (given.content, TurnKind.MESSAGE, given.on_busy):
        raise IdempotencyMismatch
    if turn.input.files != digest_of(given.files):
        raise IdempotencyMismatch
    return turn


def _key_in(session_id: uuid.UUID, addressed_id: uuid.UUID, key: str | None) -> str | None:
    """Return the key as the turn stores it. Threads that share a target session may use the same keys."""
    return key if key is None or session_id == addressed_id else _key_from(addressed_id, key)


def _key_from(addressed_id: uuid.UUID, key: str) -> str:
    return f"{addressed_id.hex}:{hashlib.sha256(key.encode()).hexdigest()}"
