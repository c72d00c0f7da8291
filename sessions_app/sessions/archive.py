"""Archive sessions, and open conversations again.

An archived session accepts no input, its queued turns are cancelled, and nothing bound to it runs.
"""

from __future__ import annotations

import uuid

from django.db import transaction

from sessions_app.events import announce
from sessions_app.exceptions import BadInput, SessionClosed
from sessions_app.mailbox.deposit import moving_undrained
from sessions_app.models import Event, EventType, Session, SessionState, SessionType, Turn, TurnState
from sessions_app.models.session import BACKGROUND
from sessions_app.queue.cancel import cancel_waiting


@transaction.atomic
def archive(session_id: uuid.UUID) -> bool:
    """Archive an open session. False if it was not open; then nothing is changed."""
    if not Session.objects.filter(pk=session_id).archive():
        return False
    waiting = Turn.objects.filter(session_id=session_id, state=TurnState.QUEUED, host__isnull=True)
    for turn_id in list(waiting.order_by("pk").values_list("pk", flat=True)):
        cancel_waiting(turn_id, "session_archived")
    return True


def archive_session(session: Session) -> None:
    """Archive a person's conversation. Nothing is changed if it is archived already. BadInput, SessionClosed."""
    _set_archived(session, archived=True)


def unarchive_session(session: Session) -> None:
    """Open an archived conversation again. Nothing is changed if it is open already. BadInput, SessionClosed."""
    _set_archived(session, archived=False)


def _set_archived(session: Session, *, archived: bool) -> None:
    """Change the state, tell the open windows, and move unread updates that no turn would show."""
    _must_be_conversation(session)
    rows = Session.objects.filter(pk=session.pk)
    with moving_undrained(session.agent_id, session.pk):
        if archive(session.pk) if archived else rows.unarchive():
            told = {"status": "archived" if archived else "unarchived"}
            Event.objects.create(
                agent_id=session.agent_id, session_id=session.pk, type=EventType.STATUS, content=told
            )
            announce(session.pk)
        elif not rows.filter(state__in=(SessionState.OPEN, SessionState.ARCHIVED)).exists():
            raise SessionClosed("the session is being deleted")


def _must_be_conversation(session: Session) -> None:
    if session.type == SessionType.PRIMARY:
        raise BadInput("the agent's own conversation cannot be archived", code="primary_session")
    if session.type in BACKGROUND:
        raise BadInput(f"a {session.type} session is archived by the server only", code="internal_session")
