"""Archive: a session whose work is done takes nothing more, and what waits in it ends with the reason."""

from __future__ import annotations

import uuid

from django.db import transaction
from django.db.models.functions import Now

from sessions_app.cancel import cancel_waiting
from sessions_app.models import Session, SessionState, Turn, TurnState


@transaction.atomic
def archive(session_id: uuid.UUID) -> bool:
    """OPEN → ARCHIVED; False, and nothing changed, when it was not open."""
    done = Session.objects.filter(pk=session_id, state=SessionState.OPEN).update(
        state=SessionState.ARCHIVED, updated_at=Now()
    )
    if not done:
        return False
    waiting = Turn.objects.filter(session_id=session_id, state=TurnState.QUEUED, host__isnull=True)
    for turn_id in list(waiting.order_by("pk").values_list("pk", flat=True)):
        cancel_waiting(turn_id, "session_archived")
    return True
