"""The statements of the journal, each behind the fence (see `journal`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from sessions_app.journal.run_parts import run_parts
from sessions_app.models import EventType, Turn, TurnState, TurnStep
from sessions_app.postgres import event_statements
from sessions_app.postgres.statements import Statement, table

_turn, _step = table(Turn), table(TurnStep)


def fence_select(*columns: Any) -> Any:
    """Select the turn's row if its claim is unchanged, and lock it against other claims."""
    return (
        sa.select(*columns)
        .where(
            _turn.c.id == sa.bindparam("turn_id", type_=sa.BigInteger()),
            _turn.c.claim == sa.bindparam("claim", type_=sa.Uuid()),
            _turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"),
        )
        .with_for_update(read=True)
    )


FENCE = Statement(fence_select(_turn.c.cancel_requested_at))


def next_step(turn_id: Any) -> Any:
    """Select the number of the turn's next step. It is not counted, since earlier steps may have been rolled back."""
    last = sa.select(sa.func.max(_step.c.n)).where(_step.c.turn_id == turn_id).correlate_except(_step)
    return sa.func.coalesce(last.scalar_subquery() + 1, 0)


def _record_clause(event_type: EventType | None = None, *, with_run: bool = False) -> Any:
    fenced = fence_select(*_turn.c).cte("fenced")
    data = sa.bindparam("data", type_=sa.Text())
    inserted = (
        sa.insert(_step)
        .from_select(
            ["turn_id", "n", "kind", "data"],
            sa.select(
                fenced.c.id,
                next_step(fenced.c.id),
                sa.bindparam("kind", type_=sa.Text()),
                sa.cast(data, JSONB),
            ),
            include_defaults=False,
        )
        .cte("inserted")
    )
    query = sa.select(fenced.c.cancel_requested_at).add_cte(inserted)
    if event_type is not None:
        shown = sa.cast(sa.bindparam("event", type_=sa.Text()), JSONB)
        query = query.add_cte(event_statements.insert_from(fenced, event_type, shown))
    return query.add_cte(run_parts().keep_prompt(fenced)) if with_run else query


RECORD_PROMPT = Statement(partial(_record_clause, with_run=True), prepared=True)
RECORD = {None: Statement(_record_clause(), prepared=True)} | {
    event_type: Statement(_record_clause(event_type), prepared=True)
    for event_type in (
        *(EventType.TOOL_CALL, EventType.TOOL_OUTPUT),
        *(EventType.PLANNING, EventType.PLAN, EventType.REPLAN),
        *(EventType.STEP_START, EventType.STEP_COMPLETE),
    )
}
