"""Remove turns, each with its guests, never one that an open run needs. All references to them are cleared."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sessions_app.models import ClientMessage, ExecutionState, MailboxEvent, Message, Session, Turn, TurnStep
from sessions_app.postgres.statements import Statement, table
from sessions_app.retention.registry import load_rules
from sessions_app.retention.walk import HOUR, among, ended, of_owners, owner_keys

_turn, _step, _message = table(Turn), table(TurnStep), table(Message)
_mail, _session, _execution = table(MailboxEvent), table(Session), table(ExecutionState)

LOCK = Statement(
    sa.select(_turn.c.id)
    .where(sa.or_(among(_turn.c.id), among(_turn.c.host_id)), ended(_turn))
    .order_by(_turn.c.id)
    .with_for_update(skip_locked=True)
)
GUESTS = Statement(sa.select(_turn.c.id, _turn.c.host_id).where(among(_turn.c.host_id)))
JOURNALS = Statement(sa.delete(_step).where(among(_step.c.turn_id)))
DELETE = Statement(sa.delete(_turn).where(among(_turn.c.id)).returning(_turn.c.id))


def _set_null(column: Any) -> Statement:
    return Statement(sa.update(column.table).where(among(column)).values({column: sa.null()}))


MESSAGES, MAILBOX = _set_null(_message.c.turn_id), _set_null(_mail.c.acknowledged_by_id)
EXECUTIONS = _set_null(_execution.c.turn_id)
CLIENT_MESSAGES = _set_null(table(ClientMessage).c.turn_id)
_blocking: list[Statement] = []
_clearing: list[Statement] = []


def register_turn_reference(column: Any, holds: Any) -> None:
    """Register a column of an app above that refers to turns.

    A turn is kept while `holds` is true of a row that refers to it. When it is removed, the column is set to null.
    """
    _blocking.append(Statement(sa.select(column.label("id")).where(among(column), holds)))
    _clearing.append(_set_null(column))


def remove_turns(ids: list[int]) -> set[int]:
    """Remove ended turns that are not guests; returns the removed ids, guests included.

    Turns that are locked or still needed are kept. The lock order is the usual one: the turn, its run, its messages.
    """
    load_rules()  # they register which rows of the apps above still need their turns
    free = {row.id for row in LOCK.all(ids=ids)}
    families: dict[int, set[int]] = {turn: {turn} for turn in ids}
    for guest in GUESTS.all(ids=ids):
        families[guest.host_id].add(guest.id)
    members = [turn for family in families.values() for turn in family]
    free -= {row.id for blocking in _blocking for row in blocking.all(ids=members)}
    going = [turn for family in families.values() if family <= free for turn in family]
    if not going:
        return set()
    for statement in (*_clearing, MESSAGES, MAILBOX, EXECUTIONS, CLIENT_MESSAGES, JOURNALS):
        statement.run(ids=going)
    return {row.id for row in DELETE.all(ids=going)}


def _beyond(session: Any) -> Any:
    """Select a session's turns older than its newest `:keep`. Those that ended lately stay: a client may wait."""
    newer = _turn.alias()
    last = (
        sa.select(newer.c.id)
        .where(newer.c.session_id == session.c.id)
        .order_by(newer.c.id.desc())
        .offset(sa.bindparam("keep", type_=sa.BigInteger()))
        .limit(1)
        .correlate(session)
        .scalar_subquery()
    )
    return (
        sa.select(_turn.c.id)
        .where(
            _turn.c.session_id == session.c.id,
            _turn.c.id <= last,
            _turn.c.host_id.is_(None),
            ended(_turn),
            _turn.c.finished_at < sa.func.now() - HOUR,
        )
        .order_by(_turn.c.id)
    )


SESSIONS = owner_keys(_session.c.id)
TOO_MANY = of_owners(_session.c.id, _beyond)
