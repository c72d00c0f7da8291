"""The messages and turns that a session shows (rule 4.10). Like selectors, each starts from the user who asks."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, OuterRef, QuerySet, UUIDField, Value

from sessions_app.models import Message, Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.merged_rows import Merged
from sessions_app.selectors import owned, session, turns, with_deliveries
from sessions_app.sessions.thread_history import Beside


def session_messages(user: AbstractBaseUser, session_id: uuid.UUID) -> Beside | QuerySet[Any]:
    """Return the messages that a session shows, each with its `place`, and `thread` for a thread's own. NotFound."""
    behind = session(user, session_id).target_id
    rows = Message.objects.annotate(shown_deliveries=with_deliveries("message_id", OuterRef("pk")))
    history = rows.filter(session=owned(user, behind))
    if behind == session_id:
        return history.annotate(place=F("seq"), thread=Value(None, output_field=UUIDField()))
    return Beside.of(history, rows.filter(session=owned(user, session_id)))


def turns_of(user: AbstractBaseUser, session_id: uuid.UUID) -> Merged[Turn] | QuerySet[Turn]:
    """Return the turns that a session shows; a thread of a unified agent also shows those of its own. NotFound."""
    behind = session(user, session_id).target_id
    rows = turns(user).filter(session=owned(user, behind))
    if behind == session_id:
        return rows
    own = turns(user).filter(session=owned(user, session_id))
    beside = Message.objects.filter(session=owned(user, session_id), shown_after_seq__isnull=False)
    return Merged(rows, own.filter(pk__in=beside.values("turn_id")), own.filter(state__in=OPEN_STATES))
