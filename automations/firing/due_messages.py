"""The SQL of firing that reads scheduled messages: claim due messages, only the first waiting one of each session.

A message waits until the earlier ones of its session have their turns, so two beats cannot change the order.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from automations.models import MessageStatus, ScheduledMessage
from sessions_app.models import Agent, Session
from sessions_app.postgres.statements import Statement, table

_message, _session, _agent = table(ScheduledMessage), table(Session), table(Agent)
_first = _message.alias("first")


@dataclass(frozen=True, kw_only=True)
class DueMessage:
    """A claimed message with what its turn needs; `now`: the database's time."""

    id: str
    message_text: str
    send_at: datetime
    session_id: uuid.UUID
    session_key: str
    session_state: str
    chat_type: str
    timezone: str
    now: datetime


def _waits(message: Any) -> Any:
    """The condition of the partial indexes, in the same words."""
    pending = message.c.status == sa.literal_column(f"'{MessageStatus.PENDING}'")
    return sa.and_(pending, message.c.taken_at.is_(None))


_LIMIT = sa.bindparam("limit", type_=sa.Integer())
# (SELECT now()), as in due_jobs.py. The session's first message by a subquery for each due row: an anti-join may be
# planned as a scan of all waiting messages.
_HEAD = (
    sa.select(_first.c.id)
    .where(_first.c.session_id == _message.c.session_id, _waits(_first))
    .order_by(_first.c.send_at, _first.c.id)
    .limit(1)
    .correlate(_message)
    .scalar_subquery()
)
_IS_DUE = sa.and_(
    _waits(_message),
    _message.c.send_at <= sa.select(sa.func.now()).scalar_subquery(),
    _message.c.id == _HEAD,
)


def _due(*columns: Any) -> Any:
    return sa.select(*columns).where(_IS_DUE).order_by(_message.c.send_at, _message.c.id).limit(_LIMIT)


def _claim(*which: Any) -> Statement:
    return Statement(_due(_message.c.id).where(*which).with_for_update(skip_locked=True))


CLAIM, CLAIM_ONE = _claim(), _claim(_message.c.id == sa.bindparam("message_id", type_=sa.Text()))
DUE_IDS = Statement(_due(_message.c.id))
READ = Statement(
    sa.select(
        *(_message.c[name] for name in ("id", "message_text", "send_at", "session_id")),
        _session.c.key.label("session_key"),
        _session.c.state.label("session_state"),
        _session.c.chat_type,
        _agent.c.timezone,
        sa.func.now().label("now"),
    )
    .select_from(
        _message.join(_session, _session.c.id == _message.c.session_id).join(
            _agent, _agent.c.id == _session.c.agent_id
        )
    )
    .where(_message.c.id == sa.any_(sa.bindparam("ids", type_=sa.ARRAY(sa.Text()))))
    .order_by(_message.c.send_at, _message.c.id)
)


def due_message_ids(limit: int) -> list[str]:
    """Ids of messages that could be claimed; nothing is locked."""
    return [row.id for row in DUE_IDS.all(limit=limit)]


def claim_due_messages(limit: int, only: str | None) -> list[DueMessage]:
    """Lock due messages that no other transaction has locked, and read them with their sessions.

    `only`: just this message. Two statements, so that the second one sees every change of a session that was
    committed before the lock.
    """
    rows = CLAIM.all(limit=limit) if only is None else CLAIM_ONE.all(limit=limit, message_id=only)
    if not rows:
        return []
    return [DueMessage(**row._asdict()) for row in READ.all(ids=[row.id for row in rows])]
