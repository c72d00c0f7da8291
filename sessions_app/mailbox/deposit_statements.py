"""The SQL of a deposit: it inserts the update, and the event that tells windows of it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from sessions_app.models import Event, EventType, MailboxEvent, Session
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.postgres import event_statements
from sessions_app.postgres.statements import Statement, table

_mail, _session, _event = table(MailboxEvent), table(Session), table(Event)
_TEXT, _NOW = sa.Text(), sa.func.now()
_TARGET = sa.bindparam("target", type_=sa.Uuid())
# KEY SHARE does not block a commit of the target session. A delete of it waits, or has come first
_TARGETS = sa.select(_session.c.id, _session.c.agent_id).where(_session.c.id == _TARGET)
_THERE = _TARGETS.with_for_update(read=True, key_share=True)


def _stored(there: Any) -> Any:
    gone = there.c.id.is_(None)

    def text(name: str) -> Any:
        return sa.bindparam(name, type_=_TEXT)

    def words(name: str) -> Any:
        return sa.case((gone, ""), else_=text(name))  # the owner is unknown then, so no text is kept

    values = {
        "event_id": sa.bindparam("event_id", type_=sa.Uuid()),
        "target_id": there.c.id,
        **{name: words(name) for name in ("summary", "detail", "source_key")},
        **{name: text(name) for name in ("event_type", "dedupe_key")},
        "artifacts": sa.cast(sa.case((gone, "[]"), else_=text("artifacts")), JSONB),
        "priority": sa.bindparam("priority", type_=sa.SmallInteger()),
        **{name: sa.bindparam(name, type_=sa.Boolean()) for name in ("suppress_if_stale", "foreign")},
        "created_at": _NOW,
        "dropped_at": sa.case((gone, _NOW)),
        "reason": sa.case((gone, TARGET_GONE), else_=""),
    }
    one = sa.select(sa.literal(1).label("one")).subquery()
    given = sa.select(*values.values()).select_from(one.outerjoin(there, sa.true()))
    return (
        insert(_mail)
        .from_select(list(values), given, include_defaults=False)
        .on_conflict_do_nothing(index_elements=["event_id"])
        .returning(_mail.c.target_id, _mail.c.event_id)
        .cte("stored")
    )


def _hinted(there: Any, stored: Any) -> Any:
    """Insert the event for every window of the agent, or of the session alone."""
    event_id = sa.cast(stored.c.event_id, _TEXT)
    told = event_statements.object_of({"has_unread_background_updates": sa.true(), "event_id": event_id})
    rows = (
        sa.select(
            there.c.agent_id,
            there.c.id,
            sa.bindparam("scope", type_=_TEXT),
            sa.literal("mailbox", _TEXT),
            sa.literal("", _TEXT),
            sa.literal(EventType.STATUS.value, _TEXT),
            sa.cast(told, JSONB),
        )
        .select_from(stored)
        .join(there, there.c.id == stored.c.target_id)
        .where(sa.bindparam("hint", type_=sa.Boolean()))
    )
    names = ["agent_id", "session_id", "scope", "source_type", "run_id", "type", "content"]
    return sa.insert(_event).from_select(names, rows, include_defaults=False).cte("hinted")


def _deposit() -> Statement:
    there = _THERE.cte("there")
    stored = _stored(there)
    agent = sa.select(there.c.agent_id).scalar_subquery().label("agent_id")
    return Statement(sa.select(stored.c.target_id, agent).add_cte(_hinted(there, stored)))


IS_THERE, DEPOSIT = Statement(_THERE), _deposit()
