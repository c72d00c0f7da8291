"""Schedule and cancel scheduled messages (rules 8.1, 8.3).

A message can be cancelled and replaced until its turn is claimed. If beat has inserted the turn already, because the
session is busy, the turn is cancelled with the message.

Lock order: an advisory lock of the session for scheduling; messages without a turn, ids ascending; then session, turn,
run and message, as in a commit and a delete.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from agent_core.text.formats import has_visible
from automations.exceptions import (
    BadMessage,
    MessageBeingSent,
    MessageFailed,
    MessageNotFound,
    MessageSent,
    ScheduleError,
    TooManyMessages,
)
from automations.jobs.clock import database_now, notify_beats
from automations.jobs.validate import check_message_quota
from automations.models import MessageStatus, RunRecord, ScheduledMessage
from automations.models.scheduled_message import MessageTransitions
from automations.schedules.schedule import read_time
from automations.schedules.zone_files import zone_or_utc
from sessions_app.exceptions import NotFound
from sessions_app.models import BACKGROUND, Lane, Session, Turn, TurnKind, TurnState
from sessions_app.models.session import ChatType
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.questions import unattended
from sessions_app.queue.cancel import cancel_waiting
from sessions_app.queue.threads import find_target, must_be_open

MOST_WAITING = 20  # scheduled messages of one session
LONGEST_TEXT = 10_000  # characters
_CODES = {"past_at": "past_time"}  # ScheduleError's code → BadMessage's code


@dataclass(frozen=True, kw_only=True)
class MessageToSchedule:
    """A message to schedule. `send_at`: an ISO time; without an offset it is in the agent's zone.

    `replace_existing`: cancel the session's pending messages. `turn_id`, `tool_call_id`: the tool call that schedules
    it; a repeated call returns the same message.
    """

    session_id: uuid.UUID
    send_at: Any
    message_text: Any
    replace_existing: bool = False
    turn_id: int | None = None
    tool_call_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A scheduled message, and the ids of the messages that it replaced."""

    message: ScheduledMessage
    cancelled_ids: tuple[str, ...]


def schedule_message(given: MessageToSchedule) -> Scheduled:
    """Store a message to send. BadMessage, TooManyMessages, NotFound, SessionClosed."""
    return retry_deadlocks(lambda: _schedule(given))


def _schedule(given: MessageToSchedule) -> Scheduled:
    try:
        with transaction.atomic():
            _lock_scheduling(given.session_id)
            earlier = _earlier(given)
            if earlier is not None:
                return _with_replaced(earlier)
            message = _insert(given)
            transaction.on_commit(notify_beats, robust=True)
            return _with_replaced(message)
    except IntegrityError as error:
        if Session.objects.filter(pk=given.session_id).exists():
            raise
        raise NotFound("there is no such session") from error  # it was deleted meanwhile


def schedule_in_thread(given_session: uuid.UUID, **given: Any) -> Scheduled:
    """Schedule a person's message: in a thread of a unified agent it goes to the primary session."""
    return retry_deadlocks(lambda: _schedule_from(given_session, given))


@transaction.atomic
def _schedule_from(given_session: uuid.UUID, given: dict[str, Any]) -> Scheduled:
    return _schedule(MessageToSchedule(session_id=find_target(given_session), **given))


def cancel_message(
    message_id: str, *, session_id: uuid.UUID | None = None, tool_call_id: str = ""
) -> ScheduledMessage:
    """Cancel a pending message; a cancelled one is returned unchanged. `session_id`: only in this session.

    MessageNotFound, MessageBeingSent, MessageSent, MessageFailed.
    """
    mine = {} if session_id is None else {"session_id": session_id}
    rows = ScheduledMessage.objects.filter(pk=message_id, **mine)
    retry_deadlocks(lambda: _cancel(rows, tool_call_id))
    message = rows.first()
    if message is None:
        raise MessageNotFound
    match message.status:
        case MessageStatus.CANCELLED:
            unattended.object_is_gone(message.session.owner_id, task_id=message.pk)
            return message
        case MessageStatus.SENT:
            raise MessageSent
        case MessageStatus.FAILED:
            raise MessageFailed
    raise MessageBeingSent


@transaction.atomic
def _cancel(rows: MessageTransitions, tool_call_id: str) -> None:
    if rows.cancel(tool_call_id=tool_call_id):
        transaction.on_commit(notify_beats, robust=True)
        return
    for message_id in rows.filter(status=MessageStatus.PENDING).values_list("pk", flat=True):
        _cancel_with_turn(message_id, tool_call_id=tool_call_id)


def cancellable_messages(session_id: uuid.UUID) -> MessageTransitions:
    """The session's messages that can be cancelled or replaced: without a turn, or with an unclaimed one."""
    waiting = ScheduledMessage.objects.waiting().filter(session_id=session_id)
    return waiting | ScheduledMessage.objects.filter(pk__in=_with_unclaimed_turns(session_id))


def unclaimed_turns(session_id: uuid.UUID) -> QuerySet[Turn]:
    """The session's queued turns of scheduled messages."""
    return Turn.objects.filter(
        session_id=session_id, lane=Lane.AUTO, state=TurnState.QUEUED, kind=TurnKind.SCHEDULED_MESSAGE
    )


def _with_unclaimed_turns(session_id: uuid.UUID) -> list[str]:
    """The ids of messages whose turns are queued, in the order of the queue."""
    return [turn.input.scheduled_message_id for turn in unclaimed_turns(session_id).order_by("due_at", "pk")]


def _cancel_with_turn(message_id: str, **by: Any) -> bool:
    """Cancel a message by its queued turn; False when a worker has claimed the turn."""
    turn_id = RunRecord.objects.filter(scheduled_message=message_id).values_list("turn_id", flat=True).first()
    if turn_id is None or not cancel_waiting(turn_id, "cancelled"):
        return False
    return bool(ScheduledMessage.objects.filter(pk=message_id).record_canceller(**by))


def local_iso(instant: datetime, zone: str) -> str:
    """`2027-01-01T09:00:00+01:00`, in the zone."""
    return instant.astimezone(zone_or_utc(zone)).isoformat(timespec="seconds")


def _lock_scheduling(session_id: uuid.UUID) -> None:
    """Lock scheduling in the session until our COMMIT, so that each call sees the messages of the previous one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"scheduled {session_id}"])


def _earlier(given: MessageToSchedule) -> ScheduledMessage | None:
    """The message that this tool call has scheduled already. BadMessage when the call's arguments differ now."""
    if given.turn_id is None or not given.tool_call_id:
        return None
    made = ScheduledMessage.objects.filter(
        created_by_turn_id=given.turn_id, created_by_tool_call_id=given.tool_call_id
    ).first()
    if made is None:
        return None
    if made.message_text != given.message_text or made.send_at != _at_that_time(given, made):
        raise BadMessage("this tool call has already scheduled another message", code="conflict")
    return made


def _at_that_time(given: MessageToSchedule, made: ScheduledMessage) -> datetime | None:
    """`send_at` as read when the message was made, since it may have passed; None when it is not a valid time."""
    zone = Session.objects.values_list("agent__timezone", flat=True).get(pk=given.session_id)
    try:
        return read_time(given.send_at, zone, made.created_at, name="send_at")[0]
    except ScheduleError:
        return None


def _insert(given: MessageToSchedule) -> ScheduledMessage:
    rows = Session.objects.select_related("agent")
    session = must_be_open(rows.filter(pk=given.session_id).first())
    must_be_private(session)
    message = ScheduledMessage(
        session=session,
        chat_type=session.chat_type,
        message_text=_text(given.message_text),
        send_at=_instant(given.send_at, session.agent.timezone),
        replace_existing=given.replace_existing,
        created_by_turn_id=given.turn_id,
        created_by_tool_call_id=given.tool_call_id,
    )
    if not given.replace_existing:
        _check_limit(session)
    check_message_quota(session, replaces=given.replace_existing)
    message.save(force_insert=True)
    if given.replace_existing:
        _replace(message, given.tool_call_id)
    message.refresh_from_db(fields=["created_at", "updated_at"])
    return message


def is_private(session: Session) -> bool:
    """Whether the session is a person's private chat with the agent."""
    return session.chat_type == ChatType.PRIVATE and session.type not in BACKGROUND


def must_be_private(session: Session) -> None:
    """BadMessage unless the session is a person's private chat."""
    if not is_private(session):
        raise BadMessage("scheduled messages are for private chats only", code="not_private")


def _text(text: Any) -> str:
    """Return the text if it is valid, unchanged. Raises BadMessage."""
    if not isinstance(text, str) or not has_visible(text):
        raise BadMessage("the text is empty", code="empty_text")
    if len(text) > LONGEST_TEXT:
        raise BadMessage(f"the text is longer than {LONGEST_TEXT} characters", code="text_too_long")
    if "\x00" in text or text != text.encode(errors="replace").decode():
        raise BadMessage("the text holds a character that cannot be stored")
    return text


def _instant(send_at: Any, zone: str) -> datetime:
    now = database_now()
    try:
        return read_time(send_at, zone, now, name="send_at")[0]
    except ScheduleError as error:
        code = _CODES.get(error.code, "bad_time")
        now_there = f" It is now {local_iso(now, zone)} ({zone})." if code == "past_time" else ""
        raise BadMessage(f"{error}{now_there}", code=code) from error


def _check_limit(session: Session) -> None:
    # after the lock, so two calls cannot both be the last
    if cancellable_messages(session.pk).count() >= MOST_WAITING:
        raise TooManyMessages(f"a session may have at most {MOST_WAITING} pending scheduled messages")


def _replace(message: ScheduledMessage, tool_call_id: str) -> None:
    """Cancel the session's other pending messages, also those with a queued turn. One claimed meanwhile is sent."""
    others = ScheduledMessage.objects.waiting().filter(session_id=message.session_id).exclude(pk=message.pk)
    locked = others.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True)
    ids = list(locked)
    ScheduledMessage.objects.filter(pk__in=ids).cancel(tool_call_id=tool_call_id, instead=message)
    # read after the lock: messages that beat took before have their turns now
    for message_id in _with_unclaimed_turns(message.session_id):
        _cancel_with_turn(message_id, tool_call_id=tool_call_id, instead=message)


def _with_replaced(message: ScheduledMessage) -> Scheduled:
    ids = ScheduledMessage.objects.filter(replaced_by=message).order_by("send_at", "pk")
    return Scheduled(message=message, cancelled_ids=tuple(ids.values_list("pk", flat=True)))
