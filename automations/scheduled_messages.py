"""Scheduled messages: making and cancelling (rules 8.1, 8.3).

Lock order: the session's turn at scheduling (an advisory lock), then its messages, ids ascending. Nobody who holds
these waits for the session's row, so a delete, a commit and beat meet them in any order.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction

from automations.clocks import database_now
from automations.due import plans_changed
from automations.exceptions import (
    BadMessage,
    MessageBeingSent,
    MessageFailed,
    MessageNotFound,
    MessageSent,
    TooManyMessages,
)
from automations.models import MessageStatus, ScheduledMessage
from automations.schedule import ScheduleError, read_time
from automations.zone_files import zone_or_utc
from sessions_app.exceptions import NotFound
from sessions_app.models import BACKGROUND, Session
from sessions_app.models.session import ChatType
from sessions_app.unified import enter, must_be_open

MOST_WAITING = 20  # scheduled messages of one session
LONGEST_TEXT = 10_000  # characters
# what shows nothing and is no space to `strip`: formats, fillers, selectors of variants
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_CODES = {"past_at": "past_time"}  # of a schedule's reading → of ours


@dataclass(frozen=True, kw_only=True)
class NewMessage:
    """A message to schedule. `send_at`: an ISO time, without offset in the agent's zone.

    `replace_existing`: what waits in the session is cancelled. `turn_id`, `tool_call_id`: the call that asks for it;
    the same call again is the same message.
    """

    session_id: uuid.UUID
    send_at: Any
    message_text: Any
    replace_existing: bool = False
    turn_id: int | None = None
    tool_call_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A scheduled message, and the ids of those that it replaced."""

    message: ScheduledMessage
    cancelled_ids: tuple[str, ...]


def schedule_message(given: NewMessage) -> Scheduled:
    """Store a message to send. BadMessage, TooManyMessages, NotFound, SessionClosed."""
    try:
        with transaction.atomic():
            _take_turns(given.session_id)
            earlier = _earlier(given)
            if earlier is not None:
                return _with_replaced(earlier)
            message = _insert(given)
            transaction.on_commit(plans_changed, robust=True)
            return _with_replaced(message)
    except IntegrityError as error:
        if Session.objects.filter(pk=given.session_id).exists():
            raise
        raise NotFound("there is no such session") from error  # it was deleted under us


def schedule_from(given_session: uuid.UUID, **given: Any) -> Scheduled:
    """`schedule_message` as a person does it: in a thread of a unified agent it goes to the primary session."""
    with transaction.atomic():
        return schedule_message(NewMessage(session_id=enter(given_session).behind, **given))


def cancel_message(
    message_id: str, *, session_id: uuid.UUID | None = None, tool_call_id: str = ""
) -> ScheduledMessage:
    """Cancel what waits; again is fine. MessageNotFound, MessageBeingSent, MessageSent, MessageFailed.

    `session_id`: it must be of this session.
    """
    mine = {} if session_id is None else {"session_id": session_id}
    with transaction.atomic():
        if ScheduledMessage.objects.filter(pk=message_id, **mine).cancel(tool_call_id=tool_call_id):
            transaction.on_commit(plans_changed, robust=True)
        message = ScheduledMessage.objects.filter(pk=message_id, **mine).first()
    if message is None:
        raise MessageNotFound
    match message.status:
        case MessageStatus.CANCELLED:
            return message
        case MessageStatus.SENT:
            raise MessageSent
        case MessageStatus.FAILED:
            raise MessageFailed
    raise MessageBeingSent


def local(instant: datetime, zone: str) -> str:
    """`2027-01-01T09:00:00+01:00`, in the zone."""
    return instant.astimezone(zone_or_utc(zone)).isoformat(timespec="seconds")


def _take_turns(session_id: uuid.UUID) -> None:
    """Of two who schedule in one session the second sees what the first did, until our COMMIT."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"scheduled {session_id}"])


def _earlier(given: NewMessage) -> ScheduledMessage | None:
    """What this very call has made already. BadMessage when the call asks for something else now."""
    if given.turn_id is None or not given.tool_call_id:
        return None
    made = ScheduledMessage.objects.filter(
        created_by_turn_id=given.turn_id, created_by_tool_call_id=given.tool_call_id
    ).first()
    if made is None:
        return None
    if made.message_text != given.message_text or made.send_at != _at_that_time(given, made):
        raise BadMessage("this call has scheduled something else already", code="conflict")
    return made


def _at_that_time(given: NewMessage, made: ScheduledMessage) -> datetime | None:
    """Its time as it was read when the message was made; by now it may have passed. None for what is no time."""
    zone = Session.objects.values_list("agent__timezone", flat=True).get(pk=given.session_id)
    try:
        return read_time(given.send_at, zone, made.created_at, name="send_at")[0]
    except ScheduleError:
        return None


def _insert(given: NewMessage) -> ScheduledMessage:
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
    message.save(force_insert=True)
    if given.replace_existing:
        _replace(message, given.tool_call_id)
    message.refresh_from_db(fields=["created_at", "updated_at"])
    return message


def must_be_private(session: Session) -> None:
    """A private chat with a person. BadMessage."""
    if session.chat_type != ChatType.PRIVATE or session.type in BACKGROUND:
        raise BadMessage("scheduled messages are for private chats only", code="not_private")


def _text(text: Any) -> str:
    """As it will be sent, to the letter."""
    if not isinstance(text, str) or not _INVISIBLE.sub("", text).strip():
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
        now_there = f" It is now {local(now, zone)} ({zone})." if code == "past_time" else ""
        raise BadMessage(f"{error}{now_there}", code=code) from error


def _check_limit(session: Session) -> None:
    # behind the lock, so two cannot both be the twentieth
    if ScheduledMessage.objects.waiting().filter(session=session).count() >= MOST_WAITING:
        raise TooManyMessages(f"a session may have {MOST_WAITING} scheduled messages waiting")


def _replace(message: ScheduledMessage, tool_call_id: str) -> None:
    """Cancel what else waits; what beat takes at this moment is sent."""
    others = ScheduledMessage.objects.waiting().filter(session_id=message.session_id).exclude(pk=message.pk)
    locked = others.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True)
    ids = list(locked)
    ScheduledMessage.objects.filter(pk__in=ids).cancel(tool_call_id=tool_call_id, instead=message)


def _with_replaced(message: ScheduledMessage) -> Scheduled:
    ids = ScheduledMessage.objects.filter(replaced_by=message).order_by("send_at", "pk")
    return Scheduled(message=message, cancelled_ids=tuple(ids.values_list("pk", flat=True)))
