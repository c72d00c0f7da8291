"""The statement of firing that queues: runs, and for each new one its turn and event."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from automations.models import RunRecord, RunState
from sessions_app import events
from sessions_app.models import EventType, Lane, OnBusy, Session, Turn, TurnState
from sessions_app.sql import Statement, table

_run, _turn, _session = table(RunRecord), table(Turn), table(Session)
_EMPTY = sa.cast(sa.literal_column("'{}'"), JSONB)


def _queue() -> Statement:
    types: dict[str, Any] = {
        "session_id": sa.Uuid(),
        "scheduled_for": sa.DateTime(timezone=True),
        "snapshot": JSONB(),
        "metadata": JSONB(),
        "lag_ms": sa.BigInteger(),
    }
    names = [
        "run_id",
        "job_id",
        "scheduled_message_id",
        "session_id",
        "session_key",
        "scheduled_for",
        "snapshot",
        "lag_ms",
        "kind",
        "content",
        "metadata",
        "idempotency_key",
    ]
    columns: list[Any] = [sa.column(name, types.get(name, sa.Text())) for name in names]
    rows = sa.func.jsonb_to_recordset(sa.cast(sa.bindparam("rows", type_=sa.Text()), JSONB))
    data = rows.table_valued(*columns, name="data").render_derived(with_types=True)
    sequence = f"pg_get_serial_sequence('{_turn.name}', 'id')::regclass"
    turn_id = sa.literal_column(f"nextval({sequence})", sa.BigInteger()).label("turn_id")
    numbered = sa.select(*data.c, turn_id).cte("numbered")
    run_values = {
        **{_run.c[n].name: numbered.c[n] for n in names if n in _run.c},
        "state": sa.literal(RunState.QUEUED.value),
        "turn_id": numbered.c.turn_id,
        "attempt": sa.literal(1),
        "usage": _EMPTY,
        **{
            name: sa.literal("")
            for name in ("reason", "rendered_prompt", "error", "error_detail", "response_summary")
        },
    }
    runs = (
        insert(_run)
        .from_select(list(run_values), sa.select(*run_values.values()), include_defaults=False)
        .on_conflict_do_nothing()
        .returning(_run.c.run_id)
        .cte("new_runs")
    )
    turn_values = {
        "id": numbered.c.turn_id,
        "session_id": numbered.c.session_id,
        "kind": numbered.c.kind,
        "lane": sa.literal(Lane.AUTO.value),
        "content": numbered.c.content,
        "metadata": numbered.c.metadata,
        "origin_run": numbered.c.run_id,
        "on_busy": sa.literal(OnBusy.ENQUEUE.value),
        "idempotency_key": numbered.c.idempotency_key,
        "state": sa.literal(TurnState.QUEUED.value),
        "due_at": numbered.c.scheduled_for,
        "origin_attempt": sa.literal(1),
        "usage": _EMPTY,
        **{name: sa.literal(0) for name in ("attempt", "rescues", "steps_at_claim")},
        **{name: sa.literal("") for name in ("error_code", "error", "error_detail")},
    }
    turns = (
        sa.insert(_turn)
        .from_select(
            list(turn_values),
            sa.select(*turn_values.values()).join(runs, runs.c.run_id == numbered.c.run_id),
            include_defaults=False,
        )
        .returning(*_turn.c)
        .cte("new_turns")
    )
    told = events.insert_from(
        turns, EventType.TURN_QUEUED, events.object_of({"text": turns.c.content, "kind": turns.c.kind})
    )
    return Statement(
        sa.select(turns.c.id, turns.c.session_id, turns.c.origin_run, _session.c.agent_id)
        .join(_session, _session.c.id == turns.c.session_id)
        .order_by(turns.c.id)
        .add_cte(told)
    )


QUEUE = _queue()


def queue(rows: list[dict[str, Any]]) -> list[Any]:
    """Insert runs, and for each one that is new its turn and event, in slot order; the new turns.

    A row names a `job_id` or a `scheduled_message_id`. A slot that has its run already is left alone: that is what
    makes a second beat harmless.
    """
    if not rows:
        return []
    return QUEUE.all(rows=json.dumps(sorted(rows, key=lambda row: str(row["scheduled_for"]))))
