"""Insert a turn and its first event. The turns of due slots are inserted by `enqueue_statements`."""

from __future__ import annotations

from sessions_app.events import announce, event
from sessions_app.models import EventType, Turn


def enqueue(turn: Turn, agent_id: int) -> None:
    """Store a queued turn and its event, and notify windows after the commit."""
    turn.save(force_insert=True)
    event(turn, agent_id, EventType.TURN_QUEUED, {"text": turn.content, "kind": turn.kind}).save(
        force_insert=True
    )
    announce(turn.session_id)
