"""The SQL of a deposit: it inserts the update, and the event that tells windows of it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from sessions_app.mailbox.bounds import MOST_OF_A_SOURCE, MOST_UNREAD, UNREAD
from sessions_app.memory.outside import has_read
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Event,
    EventType,
    MailboxEvent,
    Session,
    SessionState,
    SessionType,
)
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.models.session import WEB
from sessions_app.postgres import event_statements
from sessions_app.postgres.statements import Statement, table

_mail, _session, _event, _agents = table(MailboxEvent), table(Session), table(Event), table(Agent)
_TEXT, _NOW = sa.Text(), sa.func.now()
_TARGET = sa.bindparam("target", type_=sa.Uuid())
_AGENT = sa.bindparam("or_primary_of", type_=sa.BigInteger())


def _locked(rows: Any, *which: Any) -> Any:
    # KEY SHARE does not block a commit of the target session. A delete of it waits, or has come first
    return rows.where(*which).with_for_update(read=True, key_share=True, of=_session)


def _there() -> Any:
    """Select the session that gets the update: the target, or the primary session if no turn drains the target.

    A target is drained unless it is archived, gone, or a web thread of a unified agent (rule 6.3). `moving_undrained`
    locks the rows of agent and session that are read here. A primary session of the agent `or_primary_of` takes what
    is for a session that is gone.
    """
    own = sa.select(_session.c.agent_id).where(_session.c.id == _TARGET).scalar_subquery()
    found = sa.select(_agents.c.id, _agents.c.unified_session).where(
        _agents.c.id == sa.func.coalesce(own, _AGENT)
    )
    agent = found.with_for_update(read=True, key_share=True).cte("agent")
    rows = sa.select(_session.c.id, _session.c.agent_id).join(agent, agent.c.id == _session.c.agent_id)
    is_thread = sa.and_(_session.c.type == _text(SessionType.SUB), _session.c.channel == _text(WEB))
    is_drained = sa.and_(
        _session.c.state != _text(SessionState.ARCHIVED), ~sa.and_(is_thread, agent.c.unified_session)
    )
    target = _locked(rows, _session.c.id == _TARGET, is_drained).cte("target")
    stays = sa.select(_session.c.id).where(
        _session.c.id == _TARGET, _session.c.state != _text(SessionState.DELETING)
    )
    gone = sa.and_(~sa.exists().where(target.c.id.is_not(None)), sa.or_(_AGENT.is_not(None), stays.exists()))
    primary = _locked(rows, _session.c.key == _text(PRIMARY_KEY), gone).cte("primary_session")
    return sa.union_all(*(sa.select(each.c.id, each.c.agent_id) for each in (target, primary)))


def _text(word: str) -> Any:
    return sa.literal_column(f"'{word}'")


def _is_foreign() -> Any:
    turn_id = sa.bindparam("of_turn", type_=sa.BigInteger())
    session_id = sa.bindparam("in_session", type_=sa.Uuid())
    return sa.or_(sa.bindparam("foreign", type_=sa.Boolean()), has_read(turn_id, session_id))


def _is_crowded(there: Any) -> Any:
    """Condition: so many unread updates waited before that, with this one, there may be too many."""
    rows: Any = sa.select(sa.literal_column("1")).where(
        _mail.c.target_id == sa.select(there.c.id).scalar_subquery(), *UNREAD
    )
    return sa.exists(rows.offset(min(MOST_OF_A_SOURCE, MOST_UNREAD) - 1))


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
        "suppress_if_stale": sa.bindparam("suppress_if_stale", type_=sa.Boolean()),
        "foreign": _is_foreign(),
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
    there = _there().cte("there")
    stored = _stored(there)
    agent = sa.select(there.c.agent_id).scalar_subquery().label("agent_id")
    row = sa.select(stored.c.target_id, agent, _is_crowded(there).label("is_crowded"))
    return Statement(row.add_cte(_hinted(there, stored)), prepared=True)


IS_THERE, DEPOSIT = Statement(_there()), _deposit()
