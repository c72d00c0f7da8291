"""Scheduled messages as appointments."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, Q, QuerySet

from automations.models import MessageStatus, RunRecord, ScheduledMessage
from automations.runs.describe import Slot, SlotState, describe_run, slot_of, when
from automations.schedules.zone_files import zone_or_utc
from sessions_app.single_line import shortened

RECENT = timedelta(hours=24)  # how long a message that was sent or has failed is still shown
MOST_MESSAGES = 100
LONGEST_NAME = 60  # characters of the text
_UNREAD = ("snapshot", "prompt_variables", "rendered_prompt", "error_detail", "usage")


@dataclass(frozen=True, kw_only=True)
class About:
    """The kind, id and name of an appointment, and where it lives: session, title and agent."""

    session_id: uuid.UUID | None
    title: str
    agent: str
    kind: str = ""
    id: str = ""
    name: str = ""


def with_run(rows: QuerySet[ScheduledMessage]) -> QuerySet[ScheduledMessage]:
    """The messages with session and agent, and with their run, in two statements."""
    runs = Prefetch("runs", queryset=RunRecord.objects.defer(*_UNREAD))
    return rows.select_related("session__agent").prefetch_related(runs)


def shown_messages(rows: QuerySet[ScheduledMessage], now: datetime) -> list[ScheduledMessage]:
    """Return the messages that wait, were sent a short time ago, or failed a short time ago."""
    ended = Q(status__in=[MessageStatus.SENT, MessageStatus.FAILED], updated_at__gt=now - RECENT)
    shown = rows.filter(Q(status=MessageStatus.PENDING) | ended)
    return list(with_run(shown).order_by("send_at", "pk")[:MOST_MESSAGES])


def zone_name(message: ScheduledMessage) -> str:
    """The zone that a message's time is shown in: its agent's."""
    return zone_or_utc(message.session.agent.timezone).key


def name_of(message: ScheduledMessage) -> str:
    """The beginning of the text, on one line."""
    return shortened(message.message_text[: 4 * LONGEST_NAME], LONGEST_NAME)


def about_message(message: ScheduledMessage) -> dict[str, Any]:
    """The fields by which calendar entries and notices name a scheduled message: its id, text, session and agent."""
    return {
        "kind": "message",
        "id": message.pk,
        "name": name_of(message),
        "session_id": message.session_id,
        "title": message.session.title,
        "agent": message.session.agent.name,
    }


def is_to_come(message: ScheduledMessage) -> bool:
    """Whether the message waits for its time."""
    return message.status == MessageStatus.PENDING and message.taken_at is None


def message_now(message: ScheduledMessage, now: datetime) -> str:
    """The current state in one sentence."""
    zone = zone_or_utc(zone_name(message))
    match message.status:
        case MessageStatus.SENT:
            return f"Sent: {when(message.sent_at or message.send_at, zone)}."
        case MessageStatus.FAILED:
            return f"Not sent: {message.last_error.rstrip('.')}."
        case MessageStatus.CANCELLED:
            return "Cancelled."
    if run := _run(message):
        is_open = run.finished_at is None
        return describe_run(run, zone) if is_open else "It is in the conversation, and is being delivered."
    at = when(message.send_at, zone)
    return f"Will be sent: {at}." if message.send_at > now else f"Due since {at}: beat has not queued it yet."


def slots_of(message: ScheduledMessage, now: datetime) -> tuple[Slot, ...]:
    """The message's only slot if it was due already, else nothing."""
    run = _run(message)
    if run is None:
        return ()
    slot = slot_of(run, zone_or_utc(zone_name(message)))
    # its turn may have succeeded, but the channel refused the text
    if message.status == MessageStatus.FAILED:
        slot = replace(slot, state=SlotState.FAILED, text=message_now(message, now))
    return (slot,)


def _run(message: ScheduledMessage) -> RunRecord | None:
    """The run that sends the message, if it was due already."""
    runs: Iterable[RunRecord] = message.runs.all()
    return next(iter(runs), None)
