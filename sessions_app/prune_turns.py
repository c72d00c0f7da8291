"""Removing turns: each with the messages it took along, never under an open run, and nothing is left that names it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sessions_app.models import ExecutionState, MailboxEvent, Message, Session, Turn, TurnStep
from sessions_app.prune_sql import HOUR, among, ended, keys, of_owners
from sessions_app.sql import Statement, table

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


def _forget(column: Any) -> Statement:
    return Statement(sa.update(column.table).where(among(column)).values({column: sa.null()}))


MESSAGES, MAILBOX = _forget(_message.c.turn_id), _forget(_mail.c.acknowledged_by_id)
EXECUTIONS = _forget(_execution.c.turn_id)
_holding: list[Statement] = []
_above: list[Statement] = []


def refer(column: Any, holds: Any) -> None:
    """Make a column of an app above known that refers to turns.

    A turn stays while `holds` is true of such a row; when the turn goes, the column is emptied.
    """
    _holding.append(Statement(sa.select(column.label("id")).where(among(column), holds)))
    _above.append(_forget(column))


def remove(ids: list[int]) -> set[int]:
    """Remove ended turns that are nobody's guests; the ids of what is gone, guests included.

    What is in other hands or held stays. Locked in everybody's order: the turn, its run, its messages.
    """
    free = {row.id for row in LOCK.all(ids=ids)}
    families: dict[int, set[int]] = {turn: {turn} for turn in ids}
    for guest in GUESTS.all(ids=ids):
        families[guest.host_id].add(guest.id)
    members = [turn for family in families.values() for turn in family]
    free -= {row.id for holding in _holding for row in holding.all(ids=members)}
    going = [turn for family in families.values() if family <= free for turn in family]
    if not going:
        return set()
    for statement in (*_above, MESSAGES, MAILBOX, EXECUTIONS, JOURNALS):
        statement.run(ids=going)
    return {row.id for row in DELETE.all(ids=going)}


def _beyond(session: Any) -> Any:
    """A session's turns older than its newest `:keep`. What ended lately stays: somebody may wait for it."""
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


SESSIONS = keys(_session.c.id)
TOO_MANY = of_owners(_session.c.id, _beyond)
