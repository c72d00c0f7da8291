"""Archive sessions: they accept no more input, and their queued turns are cancelled."""

from __future__ import annotations

import uuid

from django.db import transaction

from sessions_app.events import announce
from sessions_app.mailbox.updates import moving_undrained
from sessions_app.models import Event, EventType, Session, Turn, TurnState
from sessions_app.turns.cancel import cancel_waiting


@transaction.atomic
def archive(session_id: uuid.UUID) -> bool:
    """Archive an open session. False if it was not open; then nothing is changed."""
    if not Session.objects.filter(pk=session_id).archive():
        return False
    waiting = Turn.objects.filter(session_id=session_id, state=TurnState.QUEUED, host__isnull=True)
    for turn_id in list(waiting.order_by("pk").values_list("pk", flat=True)):
        cancel_waiting(turn_id, "session_archived")
    return True


def archive_conversation(session: Session) -> None:
    """Archive a person's conversation, and tell its open windows. Nothing is changed or told if it was not open.

    Its unread updates move to the agent's primary session.
    """
    with moving_undrained(session.agent_id, session.pk):
        if archive(session.pk):
            told = {"status": "archived"}
            Event.objects.create(
                agent_id=session.agent_id, session_id=session.pk, type=EventType.STATUS, content=told
            )
            announce(session.pk)
