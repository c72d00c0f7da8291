"""Whether a turn, or an earlier turn of its session, has read text from outside (rule 3.5)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.types import Role, StepKind
from sessions_app.models import Message, Turn, TurnStep
from sessions_app.postgres.statements import Statement, table

_step, _message = table(TurnStep), table(Message)


def has_read(turn_id: Any, session_id: Any) -> Any:
    """Condition: this turn, or an earlier one of this session, has read text from outside."""
    # what a running turn has read is in its journal only
    now = sa.exists().where(
        _step.c.turn_id == turn_id,
        _step.c.kind == sa.literal_column(f"'{StepKind.RESULT}'"),
        _step.c.data.op("@>")(_json('{"foreign": true}')),
    )
    before = sa.exists().where(
        _message.c.session_id == session_id,
        _message.c.role == sa.literal_column(f"'{Role.TOOL}'"),
        _message.c.parts.op("@>")(_json('{"results": [{"foreign": true}]}')),
    )
    return sa.or_(now, before)


def _json(text: str) -> Any:
    return sa.cast(sa.literal(text, sa.Text()), JSONB)


_HAS_READ = Statement(
    sa.select(
        has_read(
            sa.bindparam("turn_id", type_=sa.BigInteger()), sa.bindparam("session_id", type_=sa.Uuid())
        ).label("has_read")
    )
)


def has_read_in(turn: Turn) -> bool:
    """Whether the turn so far, or an earlier turn of its session, has read text from outside."""
    if turn.input.is_restricted:
        return True
    row = _HAS_READ.first(turn_id=turn.pk, session_id=turn.session_id)
    return row is not None and bool(row.has_read)
