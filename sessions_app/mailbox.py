"""The mailbox: what other sessions' work has to say, shown with the next turn, then acknowledged.

Drain and acknowledgement are two halves of one turn: step 0 of the journal names what was shown, and the commit
acknowledges exactly that. A turn that fails acknowledges nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models.functions import Now

from agent_core.strategies import Update
from sessions_app.models import MailboxEvent, Turn

MOST_EVENTS = 50  # shown with one turn
MOST_CHARACTERS = 20_000


@dataclass(frozen=True, kw_only=True)
class Drained:
    """Events to show with a turn, urgent first; `ids` are their rows."""

    ids: tuple[int, ...]
    updates: tuple[Update, ...]


def prepare_drain(session_id: uuid.UUID) -> Drained:
    """Read what waits and fits. Nothing is changed: what does not fit stays for the next turn."""
    waiting = MailboxEvent.objects.filter(
        target_id=session_id, acknowledged_at__isnull=True, dropped_at__isnull=True
    ).order_by("-priority", "id")[:MOST_EVENTS]
    taken: list[MailboxEvent] = []
    room = MOST_CHARACTERS
    for event in waiting:
        room -= len(event.summary) + len(event.detail)
        if taken and room < 0:
            break
        taken.append(event)
    return Drained(
        ids=tuple(event.pk for event in taken),
        updates=tuple(
            Update(event_type=event.event_type, summary=event.summary, detail=event.detail) for event in taken
        ),
    )


def acknowledge(turn: Turn, ids: Iterable[int]) -> None:
    """Mark events as shown by this turn; part of its commit. What was dropped meanwhile stays dropped."""
    MailboxEvent.objects.filter(
        pk__in=list(ids), acknowledged_at__isnull=True, dropped_at__isnull=True
    ).update(acknowledged_at=Now(), acknowledged_by=turn)
