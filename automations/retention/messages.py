"""Delete old scheduled messages that were sent, cancelled or failed, with their runs."""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from automations.models import MessageStatus, RunRecord, ScheduledMessage
from sessions_app.models import Session
from sessions_app.postgres.statements import Statement, table
from sessions_app.retention import turns
from sessions_app.retention.walk import OwnerWalk, among, of_owners, old, register_walk

_message, _run = table(ScheduledMessage), table(RunRecord)
_IDS = sa.bindparam("ids", type_=sa.ARRAY(sa.Text()))
_ENDED: Any = _message.c.status != sa.literal_column(f"'{MessageStatus.PENDING}'")

OLD = of_owners(
    table(Session).c.id,
    lambda session: (
        sa.select(_message.c.id)
        .where(_message.c.session_id == session.c.id, _ENDED, old(_message.c.updated_at))
        .order_by(_message.c.created_at)
    ),
)
LOCK = Statement(
    sa.select(_message.c.id)
    .where(among(_message.c.id, _IDS), _ENDED)
    .order_by(_message.c.id)
    .with_for_update(skip_locked=True)
)
FORGET = Statement(
    sa.update(_message).where(among(_message.c.replaced_by_id, _IDS)).values(replaced_by_id=sa.null())
)
RUNS = Statement(sa.delete(_run).where(among(_run.c.scheduled_message_id, _IDS)))
DELETE = Statement(sa.delete(_message).where(among(_message.c.id, _IDS)).returning(_message.c.id))


def remove(ids: list[str]) -> set[str]:
    """Delete those of these messages that are not locked. Returns their ids."""
    free = [row.id for row in LOCK.all(ids=ids)]
    if not free:
        return set()
    for statement in (FORGET, RUNS):
        statement.run(ids=free)
    return {row.id for row in DELETE.all(ids=free)}


def _params() -> dict[str, Any] | None:
    days = settings.RONDO_KEEP_SCHEDULED_DAYS
    return {"days": days} if days else None


def register_message_retention() -> None:
    """Register the deletion of old messages with maintenance."""
    register_walk(
        OwnerWalk(
            name="scheduled messages",
            params=_params,
            owners=turns.SESSIONS,
            first=str(uuid.UUID(int=0)),
            read_key=uuid.UUID,
            over=OLD,
            remove=remove,
        )
    )
