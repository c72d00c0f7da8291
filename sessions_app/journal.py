"""The journal of a running turn: each step with its intent and result, written behind the turn's fence.

The fence: a write begins by reading the turn's row with its own claim, RUNNING, FOR SHARE. No row means that this
worker is stale. EXISTS is not enough: READ COMMITTED still sees the old version of a row that a rescue is changing.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from django.db import transaction
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.exceptions import Stale
from agent_core.types import Step, StepKind
from sessions_app import events
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
    """Select the number of the turn's next step from its stored steps: a step in memory may have been rolled back."""
    last = sa.select(sa.func.max(_step.c.n)).where(_step.c.turn_id == turn_id).correlate_except(_step)
    return sa.func.coalesce(last.scalar_subquery() + 1, 0)


def _record_clause(event_type: EventType | None = None) -> Any:
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
    return query


RECORD = {None: Statement(_record_clause(), prepared=True)} | {
    event_type: Statement(_record_clause(event_type), prepared=True)
    for event_type in (
        *(EventType.TOOL_CALL, EventType.TOOL_OUTPUT),
        *(EventType.PLANNING, EventType.PLAN, EventType.REPLAN),
        *(EventType.STEP_START, EventType.STEP_COMPLETE),
    )
}


class Journal:
    """The steps of one claimed turn. Writes raise Stale if another worker has claimed the turn."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def steps(self, *, of_this_attempt: bool = False) -> tuple[Step, ...]:
        """Return the steps of earlier attempts, step 0 first; with `of_this_attempt` also those of this one.

        They are read after the claim, when no earlier worker can add any more.
        """
        if self.turn.attempt == 1 and not of_this_attempt:
            return ()
        rows = list(TurnStep.objects.filter(turn_id=self.turn.pk).order_by("n"))
        return tuple(Step(n=row.n, kind=StepKind(row.kind), data=row.data) for row in rows)

    def fence(self) -> None:
        """Lock the turn's row for the current transaction. Stale if the claim is not its own."""
        if not transaction.get_connection().in_atomic_block:
            raise RuntimeError("the fence needs an open transaction")
        row = FENCE.first(turn_id=self.turn.pk, claim=self.turn.claim)
        if row is None:
            raise Stale
        self.turn.cancel_requested_at = row.cancel_requested_at

    def record(
        self, kind: StepKind, data: dict[str, Any], event: tuple[EventType, dict[str, Any]] | None = None
    ) -> None:
        """Append a step and its event behind the fence, in one statement."""
        shown = {"event": json.dumps(event[1])} if event is not None else {}
        row = RECORD[event[0] if event else None].first(
            turn_id=self.turn.pk, claim=self.turn.claim, kind=str(kind), data=json.dumps(data), **shown
        )
        if row is None:
            raise Stale
        self.turn.cancel_requested_at = row.cancel_requested_at
        if event is not None:
            events.announce(self.turn.session_id)
