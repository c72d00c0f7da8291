"""Receive messages: store one queued turn, and send a hint after the commit. Turns of slots begin in `automations`."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from agent_core.execution import WAITING
from agent_core.planner.decide import is_clear
from agent_core.types import Image
from sessions_app import metrics
from sessions_app.exceptions import BadInput, IdempotencyMismatch, NotFound, SessionBusy, TooManyWaiting
from sessions_app.hints import wake
from sessions_app.limits import quotas
from sessions_app.memory import images
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
    TurnKind,
    TurnState,
)
from sessions_app.models.turn import BY_PROGRAM, OPEN_STATES
from sessions_app.postgres.compiled import CompiledQuery, Parameter
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.queue import cancel, enqueue
from sessions_app.queue.threads import Entered, addressed, admit, must_be_open

LONGEST_MESSAGE = 100_000  # characters
MOST_WAITING = 100  # queued messages of one session
MOST_OF_STRANGERS = (
    20  # queued messages above which no more posts are accepted, so that people do not wait for them
)
EXCLUSIVE = frozenset({OnBusy.REJECT, OnBusy.INTERRUPT})  # these lock the session
INTERNAL = frozenset({SessionType.HEARTBEAT, SessionType.JOB})


@dataclass(frozen=True, kw_only=True)
class MessageInput:
    """A message. `route` is where the answer goes; None: to the session's own address.

    One with `images` must be a turn of its own: nothing injects them.
    """

    content: str
    on_busy: OnBusy = OnBusy.INJECT
    metadata: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    route: dict[str, Any] | None = None
    images: tuple[Image, ...] = ()


def program_message(content: str, idempotency_key: str | None = None) -> MessageInput:
    """A message that a program wrote for its user: it becomes a turn of its own, and is never consent (rule 3.5)."""
    marked = {BY_PROGRAM: True}
    return MessageInput(
        content=content, on_busy=OnBusy.ENQUEUE, metadata=marked, idempotency_key=idempotency_key
    )


def receive(session_id: uuid.UUID, given: MessageInput, owner_id: int | None = None) -> Turn:
    """Queue a message. The same idempotency key and content return the same turn.

    A message to a thread of a unified agent becomes a turn of the primary session. With `owner_id`, a session of
    another user is not found.
    BadInput, NotFound, SessionClosed, OwnerInactive, StorageFull, SessionBusy (`on_busy` reject), TooManyWaiting,
    IdempotencyMismatch.
    """
    _check(given)
    if given.on_busy == OnBusy.INJECT and is_clear(given.content):
        given = replace(given, on_busy=OnBusy.ENQUEUE)  # a command must not be injected into a running turn
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
    if given.idempotency_key is None and given.on_busy not in EXCLUSIVE and not given.images:
        return _queue(session_id, given, owner_id)
    with transaction.atomic():
        if given.idempotency_key is not None:
            _lock_key(session_id, given.idempotency_key)
        return _queue(session_id, given, owner_id)


def _queue(session_id: uuid.UUID, given: MessageInput, owner_id: int | None) -> Turn:
    key = given.idempotency_key
    behind = None if key is None else _key_from(session_id, key)
    found = _RECIPIENT.first(session=session_id, owner=owner_id, key=key, key_behind=behind)
    if found is not None and (earlier := _earlier(found.earlier, given)):
        return earlier
    entered = admit(found)
    _check_not_internal(entered.session)
    _check_room(entered.session, given)
    session = _target_session(entered, given)
    if given.on_busy == OnBusy.REJECT and _is_busy(session.pk):
        raise SessionBusy
    turn = Turn(
        session_id=session.pk,
        kind=TurnKind.MESSAGE,
        lane=Lane.PEOPLE,
        content=given.content,
        metadata=given.metadata
        | _images(session, given)
        | {"route": given.route or entered.session.own_route, "seen": session.last_seq}
        | ({"command": "clear"} if _is_command(session, given) else {})
        | _request(),
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


def _request() -> dict[str, Any]:
    """The id of the request that brings the message, for the log lines of its turn."""
    found = structlog.contextvars.get_contextvars().get("request")
    return {"request": found} if found else {}


def _images(session: Session, given: MessageInput) -> dict[str, Any]:
    """Store the images. BadInput."""
    if not given.images:
        return {}
    about: dict[str, Any] = given.metadata.get("message", {})
    quotas.count_stored(session.owner_id, sum(len(each.content) for each in given.images))
    return {"message": about | {images.KEY: images.store_images(session, given.images)}}


def _is_command(session: Session, given: MessageInput) -> bool:
    """Whether it is a command to clear the conversation. While a question waits, only `/clear` is."""
    if not is_clear(given.content):
        return False
    if {"execution", "question"} & given.metadata.keys():
        return False
    return is_clear(given.content, waits=True) or not _question_waits(session.pk)


def _question_waits(session_id: uuid.UUID) -> bool:
    asked = ConsentQuestion.objects.filter(session_id=session_id, execution="", state=ConsentState.OPEN)
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


def _queue_limits() -> dict[str, Exists]:
    """Annotations: whether the limits of queued messages are reached. Each reads the queue's index up to the limit."""
    queue = Turn.objects.filter(
        session=OuterRef("target_id"), state=TurnState.QUEUED, lane=Lane.PEOPLE
    ).order_by()
    return {
        "has_most": Exists(queue[MOST_WAITING - 1 : MOST_WAITING]),
        "has_most_of_strangers": Exists(queue[MOST_OF_STRANGERS - 1 : MOST_OF_STRANGERS]),
    }


def _check_room(session: Any, given: MessageInput) -> None:
    """TooManyWaiting. Messages that arrive at the same instant do not see each other and may exceed the limit."""
    via = given.metadata.get("message", {}).get("via") or {"as_person": True}
    is_full, most = session.has_most, MOST_WAITING
    if not via["as_person"]:
        is_full, most = session.has_most_of_strangers, MOST_OF_STRANGERS
    if is_full:
        raise TooManyWaiting(f"{most} messages already wait in this session; send it later")


def _target_session(entered: Entered, given: MessageInput) -> Session:
    """Return the session that gets the turn; in unified mode, a thread's messages go to the primary session.

    A concurrent delete needs no lock here: it makes the foreign key fail at COMMIT.
    """
    exclusive = given.on_busy in EXCLUSIVE
    if entered.target_id == entered.session.pk and not exclusive:
        return entered.session
    rows = Session.objects.filter(pk=entered.target_id)
    return must_be_open((rows.select_for_update(no_key=True) if exclusive else rows).first())


def _is_busy(session_id: uuid.UUID) -> bool:
    return Turn.objects.filter(session_id=session_id, state__in=OPEN_STATES).exists()


def _recipient() -> QuerySet[Any]:
    """Return the session of the parameter `session`, with all that a message depends on.

    With an `owner`, only if it is that user's. `earlier` is the turn that was stored with `key`, even if unified mode
    was toggled since.
    """
    owned = addressed().filter(owner_id=Coalesce(Parameter("owner"), F("owner_id")))
    primary = Session.objects.filter(key=PRIMARY_KEY, agent__sessions=Parameter("session")).values("pk")[:1]
    said_here = Q(session_id=Parameter("session"), idempotency_key=Parameter("key"))
    said_behind = Q(session_id=Subquery(primary), idempotency_key=Parameter("key_behind"))
    earlier = Turn.objects.filter(said_here | said_behind).order_by().values("pk")[:1]
    found: QuerySet[Any] = owned.annotate(earlier=Subquery(earlier), **_queue_limits())
    return found


_RECIPIENT = CompiledQuery(_recipient)


def _lock_key(session_id: uuid.UUID, key: str) -> None:
    """The lock lasts until COMMIT, so the second of two concurrent requests with one key sees the turn of the first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{session_id} {key}"])


def _earlier(turn_id: int | None, given: MessageInput) -> Turn | None:
    """Return the turn that was stored with the same key. IdempotencyMismatch."""
    turn = turn_id and Turn.objects.filter(pk=turn_id).first()
    if not turn:
        return None
    if (turn.content, turn.kind, turn.on_busy) != (given.content, TurnKind.MESSAGE, given.on_busy):
        raise IdempotencyMismatch
    return turn


def _key_in(session_id: uuid.UUID, entered_id: uuid.UUID, key: str | None) -> str | None:
    """Return the key as the turn stores it. Threads that share a target session may use the same keys."""
    return key if key is None or session_id == entered_id else _key_from(entered_id, key)


def _key_from(entered_id: uuid.UUID, key: str) -> str:
    return f"{entered_id.hex}:{hashlib.sha256(key.encode()).hexdigest()}"
