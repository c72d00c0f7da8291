"""The SQL that reads a session's messages as the model sees them, each with the deliveries of it that failed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sessions_app.models import Delivery, DeliveryState, Message, Turn
from sessions_app.models.turn_input import shares
from sessions_app.postgres.event_statements import object_of
from sessions_app.postgres.statements import Statement, table

_message, _delivery, _turn = table(Message), table(Delivery), table(Turn)
_READ = ("role", "content", "model_content", "parts", "metadata")
_UNSENT = (DeliveryState.FAILED, DeliveryState.CLOSED)


def _object(fields: dict[str, Any]) -> Any:
    return object_of(fields, sa.func.json_build_object)


def _array(objects: Any, *order: Any) -> Any:
    found = sa.func.json_agg(sa.dialects.postgresql.aggregate_order_by(objects, *order))
    return sa.func.coalesce(found, sa.literal_column("'[]'::json"))


def _unsent(message: Any) -> Any:
    """Select `{channel, state}` of the deliveries of a message that failed, or were sent again after that."""
    shown = _object({"channel": _delivery.c.channel, "state": _delivery.c.state})
    states: list[Any] = [sa.literal_column(f"'{state}'") for state in _UNSENT]
    return (
        sa.select(_array(shown, _delivery.c.id))
        .where(
            _delivery.c.message_id == message.c.id,
            sa.or_(_delivery.c.handed_over_at > _delivery.c.created_at, _delivery.c.state.in_(states)),
        )
        .scalar_subquery()
    )


_COLUMNS = (_message.c.seq, *(_message.c[name] for name in _READ), _unsent(_message).label("unsent"))


def newest_messages(session: Any) -> Any:
    """Select the newest `most` messages in the window of a session (a row of the query) as a JSON array, newest first.

    Parameter `of_turns`: the JSON of the input that a message's turn must share; null: every message counts.
    """
    of_turns = sa.cast(sa.bindparam("of_turns", type_=sa.Text()), sa.dialects.postgresql.JSONB)
    its_turn = sa.exists().where(_turn.c.id == _message.c.turn_id, shares(_turn.c.metadata, of_turns))
    rows = (
        sa.select(*_COLUMNS)
        .where(
            _message.c.session_id == session.c.id,
            _message.c.seq >= session.c.window_from_seq,
            sa.or_(of_turns.is_(None), its_turn),
        )
        .order_by(_message.c.seq.desc())
        .limit(sa.bindparam("most", type_=sa.Integer()))
        .correlate(session)
        .subquery("newest")
    )
    shown = _object({name: rows.c[name] for name in (*_READ, "unsent")})
    return sa.select(_array(shown, rows.c.seq.desc())).scalar_subquery()


MESSAGES_BETWEEN = Statement(
    sa.select(*_COLUMNS, _message.c.created_at)
    .where(
        _message.c.session_id == sa.bindparam("session_id", type_=sa.Uuid()),
        _message.c.seq.between(
            sa.bindparam("first", type_=sa.BigInteger()), sa.bindparam("last", type_=sa.BigInteger())
        ),
    )
    .order_by(_message.c.seq)
    .limit(sa.bindparam("most", type_=sa.Integer()))
)
