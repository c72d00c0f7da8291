"""The journal of a running turn, and the fence before each of its writes.

The fence: a write begins by reading the turn row with its own claim, RUNNING, FOR SHARE. No row means that this
worker is stale. A plain EXISTS would not do: READ COMMITTED still sees the row that a rescuer is changing.
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
from sessions_app.sql import Statement, table

_turn, _step = table(Turn), table(TurnStep)


def fence_select(*columns: Any) -> Any:
    """The turn row, if it is still this claim's, locked against whoever would take it."""
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


def _following(turn_id: Any) -> Any:
    """The number of the turn's next step: read, not counted, since what was counted may have been rolled back."""
    last = sa.select(sa.func.max(_step.c.n)).where(_step.c.turn_id == turn_id).correlate_except(_step)
    return sa.func.coalesce(last.scalar_subquery() + 1, 0)


def _record(event_type: EventType | None) -> Statement:
    fenced = fence_select(*_turn.c).cte("fenced")
    data = sa.bindparam("data", type_=sa.Text())
    inserted = (
        sa.insert(_step)
        .from_select(
            ["turn_id", "n", "kind", "data"],
            sa.select(
                fenced.c.id,
                _following(fenced.c.id),
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
        query = query.add_cte(events.insert_from(fenced, event_type, shown))
    return Statement(query)


_RECORD = {None: _record(None)} | {
    event_type: _record(event_type)
    for event_type in (
        *(EventType.TOOL_CALL, EventType.TOOL_OUTPUT),
        *(EventType.PLANNING, EventType.PLAN, EventType.REPLAN),
        *(EventType.STEP_START, EventType.STEP_COMPLETE),
    )
}


class Journal:
    """The steps of one claimed turn. Every method raises Stale when the turn is no longer this claim's."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def steps(self, *, of_this_attempt: bool = False) -> tuple[Step, ...]:
        """What earlier attempts recorded, step 0 first; after a failure also what this one did.

        The claim cannot tell how many there are: it may have waited for a write it does not see. Now nobody
        else can add any.
        """
        if self.turn.attempt == 1 and not of_this_attempt:
            return ()
        rows = list(TurnStep.objects.filter(turn_id=self.turn.pk).order_by("n"))
        return tuple(Step(n=row.n, kind=StepKind(row.kind), data=row.data) for row in rows)

    def fence(self) -> None:
        """Lock the turn row for the transaction under way; Stale if it is not ours."""
        if not transaction.get_connection().in_atomic_block:
            raise RuntimeError("the fence holds only within a transaction")
        row = FENCE.first(turn_id=self.turn.pk, claim=self.turn.claim)
        if row is None:
            raise Stale
        self.turn.cancel_requested_at = row.cancel_requested_at

    def record(
        self, kind: StepKind, data: dict[str, Any], event: tuple[EventType, dict[str, Any]] | None = None
    ) -> None:
        """Append a step, with the event that tells of it, behind the fence. One statement."""
        params: dict[str, Any] = {"kind": str(kind), "data": json.dumps(data)}
        if event is not None:
            params["event"] = json.dumps(event[1])
        statement = _RECORD[event[0] if event else None]
        row = statement.first(turn_id=self.turn.pk, claim=self.turn.claim, **params)
        if row is None:
            raise Stale
        self.turn.cancel_requested_at = row.cancel_requested_at
        if event is not None:
            events.announce(self.turn.session_id)
