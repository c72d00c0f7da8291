"""Delete old scheduled messages that were sent, cancelled or failed, with their runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from automations.models import MessageStatus, RunRecord, ScheduledMessage
from sessions_app.models import Session
from sessions_app.postgres.statements import table
from sessions_app.retention.walk import SESSIONS, OwnerWalk, of_owners, old, register_walk

_message = table(ScheduledMessage)
_ENDED: Any = _message.c.status != sa.literal_column(f"'{MessageStatus.PENDING}'")

OLD = of_owners(
    table(Session).c.id,
    lambda session: (
        sa.select(_message.c.id)
        .where(_message.c.session_id == session.c.id, _ENDED, old(_message.c.updated_at))
        .order_by(_message.c.created_at)
    ),
)


def remove(ids: Iterable[str]) -> set[str]:
    """Delete these messages, except locked ones, with their runs. Returns the deleted ids."""
    ended = ScheduledMessage.objects.filter(pk__in=ids).exclude(status=MessageStatus.PENDING).order_by("pk")
    free = set(ended.select_for_update(skip_locked=True).values_list("pk", flat=True))
    ScheduledMessage.objects.filter(replaced_by__in=free).update(replaced_by=None)
    RunRecord.objects.filter(scheduled_message__in=free).delete()
    ScheduledMessage.objects.filter(pk__in=free).delete()
    return free


def _params() -> dict[str, Any] | None:
    days = settings.RONDO_KEEP_SCHEDULED_DAYS
    return {"days": days} if days else None


def register_message_retention() -> None:
    """Register the deletion of old messages with maintenance."""
    register_walk(
        OwnerWalk(
            name="scheduled messages",
            params=_params,
            owners=SESSIONS,
            first=str(uuid.UUID(int=0)),
            read_key=uuid.UUID,
            over=OLD,
            remove=remove,
        )
    )
