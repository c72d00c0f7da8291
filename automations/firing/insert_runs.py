"""Insert runs with their turns and events in one statement, then notify windows and workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from automations.models import RunRecord, RunState
from sessions_app import events
from sessions_app.hints import Hint, send
from sessions_app.models import Lane, Session, Turn
from sessions_app.postgres.statements import Statement, table
from sessions_app.turns.enqueue_statements import EMPTY, GIVEN, insert_turns

_run, _turn, _session = table(RunRecord), table(Turn), table(Session)
HINTS_PER_AGENT = 20  # in one batch; the sweep and finishing turns hint at the other sessions


def _queue() -> Statement:
    types: dict[str, Any] = {
        "run_id": sa.Text(),
        "job_id": sa.Text(),
        "scheduled_message_id": sa.Text(),
        "session_id": sa.Uuid(),
        "session_key": sa.Text(),
        "scheduled_for": sa.DateTime(timezone=True),
        "snapshot": JSONB(),
        "lag_ms": sa.BigInteger(),
        "kind": sa.Text(),
        "content": sa.Text(),
        "metadata": JSONB(),
        "idempotency_key": sa.Text(),
    }
    columns: list[Any] = [sa.column(name, type_) for name, type_ in types.items()]
    rows = sa.func.jsonb_to_recordset(sa.cast(sa.bindparam("rows", type_=sa.Text()), JSONB))
    data = rows.table_valued(*columns, name="data").render_derived(with_types=True)
    sequence = f"pg_get_serial_sequence('{_turn.name}', 'id')::regclass"
    turn_id = sa.literal_column(f"nextval({sequence})", sa.BigInteger()).label("turn_id")
    numbered = sa.select(*data.c, turn_id).cte("numbered")
    run_values = {
        **{_run.c[name].name: numbered.c[name] for name in types if name in _run.c},
        "state": sa.literal(RunState.QUEUED.value),
        "turn_id": numbered.c.turn_id,
        "attempt": sa.literal(1),
        "usage": EMPTY,
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
    named = {"id": numbered.c.turn_id, "origin_run": numbered.c.run_id, "due_at": numbered.c.scheduled_for}
    given = [named[name].label(name) if name in named else numbered.c[name] for name in GIVEN]
    new = sa.select(*given).join(runs, runs.c.run_id == numbered.c.run_id).subquery("new")
    turns, queued = insert_turns(new)
    return Statement(
        sa.select(turns.c.id, turns.c.session_id, turns.c.origin_run, _session.c.agent_id)
        .join(_session, _session.c.id == turns.c.session_id)
        .order_by(turns.c.id)
        .add_cte(queued)
    )


QUEUE = _queue()


def insert_runs(rows: list[dict[str, Any]]) -> list[Any]:
    """Insert runs in slot order, each with its turn and event. Returns the new turns.

    A row names a `job_id` or a `scheduled_message_id`. A slot that already has a run is ignored, so a second beat
    does no harm.
    """
    if not rows:
        return []
    return QUEUE.all(rows=json.dumps(sorted(rows, key=lambda row: str(row["scheduled_for"]))))


def announce_turns(queued: Sequence[Any]) -> list[Hint]:
    """After the commit, notify windows and send hints: one for each session, at most 20 for each agent.

    Returns the hints.
    """
    per_agent: Counter[int] = Counter()
    hints: dict[Hint, None] = {}
    for turn in queued:
        events.announce(turn.session_id)
        per_agent[turn.agent_id] += 1
        if per_agent[turn.agent_id] <= HINTS_PER_AGENT:
            hints[Hint(session_id=turn.session_id, lane=Lane.AUTO)] = None
    send(hints)
    return list(hints)


def lag_ms(late: timedelta) -> int:
    """A run's lag in milliseconds, at least 0."""
    return max(0, round(late.total_seconds() * 1000))
