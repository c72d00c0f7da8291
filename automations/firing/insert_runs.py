"""Insert runs with their turns and events in one statement, then notify windows and workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from agent_core.telemetry import spans
from automations.models import RunRecord, RunState
from sessions_app import events
from sessions_app.hints import Hint, send
from sessions_app.models import Lane, Session, Turn
from sessions_app.postgres.statements import Statement, recordset, recordset_of, table
from sessions_app.queue.enqueue import EMPTY, GIVEN, insert_turns
from sessions_app.tracing import trace_of_run

_run, _turn, _session = table(RunRecord), table(Turn), table(Session)
_RUN_COLUMNS: dict[str, Any] = {
    "run_id": sa.Text(),
    "job_id": sa.Text(),
    "scheduled_message_id": sa.Text(),
    "scheduled_for": sa.DateTime(timezone=True),
    "lag_ms": sa.BigInteger(),
    "snapshot": JSONB(),
    "session_id": sa.Uuid(),
    "owner_id": sa.BigInteger(),
}
_TURN_COLUMNS: dict[str, Any] = {"kind": sa.Text(), "content": sa.Text(), "metadata": JSONB()}


def _given() -> Any:
    """The parameter `rows`, each with its session and the id of its turn, which follow the order of the slots."""
    data = recordset("rows", _RUN_COLUMNS | _TURN_COLUMNS).subquery("data")
    # a subquery, so that the sequence is looked up once and not for each row
    sequence = f"(SELECT pg_get_serial_sequence('{_turn.name}', 'id')::regclass)"
    turn_id = sa.literal_column(f"nextval({sequence})", sa.BigInteger()).label("turn_id")
    numbered = sa.select(*data.c, turn_id).cte("numbered")
    # LEFT JOIN: without its session a row must fail, since its clock moves
    return (
        sa.select(
            *numbered.c,
            _session.c.key.label("session_key"),
            _session.c.agent_id,
            _session.c.owner_id.label("session_owner_id"),
            sa.func.concat("run:", numbered.c.run_id, ":1").label("idempotency_key"),
        )
        .select_from(numbered)
        .outerjoin(_session, _session.c.id == numbered.c.session_id)
        .cte("given")
    )


def _queue() -> Any:
    given = _given()
    texts = ("reason", "rendered_prompt", "error", "error_detail", "response_summary")
    values = {
        **{name: given.c[name] for name in (*_RUN_COLUMNS, "turn_id", "session_key")},
        "state": sa.literal(RunState.QUEUED.value),
        "attempt": sa.literal(1),
        "usage": EMPTY,
        **{name: sa.literal("") for name in texts},
    }
    new_runs = (
        insert(_run)
        .from_select(list(values), sa.select(*values.values()), include_defaults=False)
        .on_conflict_do_nothing()
        .returning(_run.c.run_id)
        .cte("new_runs")
    )
    named = {"id": given.c.turn_id, "origin_run": given.c.run_id, "due_at": given.c.scheduled_for}
    columns = [named[name].label(name) if name in named else given.c[name] for name in GIVEN]
    is_new = new_runs.c.run_id == given.c.run_id
    owner = given.c.session_owner_id.label("owner_id")
    new = sa.select(*columns, given.c.agent_id, owner).join(new_runs, is_new).cte("new")
    turns, queued = insert_turns(new)
    return sa.select(new.c.session_id, new.c.origin_run).order_by(new.c.id).add_cte(turns, queued)


QUEUE = Statement(_queue(), prepared=True)


def insert_runs(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Insert runs in slot order, each with its turn and event. Returns what `announce_turns` takes.

    A row has the columns of a run of a `job_id` or a `scheduled_message_id`, and those of its turn. A slot that already
    has a run is ignored.
    """
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: row["scheduled_for"])
    texts = [row | {"scheduled_for": row["scheduled_for"].isoformat()} for row in ordered]
    return QUEUE.all(**recordset_of("rows", texts))


def announce_turns(queued: Sequence[Any]) -> list[Hint]:
    """After the commit, notify windows and send a hint for each session. Returns the hints."""
    trace_slots(turn.origin_run for turn in queued)
    events.announce_each(turn.session_id for turn in queued)
    sessions = dict.fromkeys(turn.session_id for turn in queued)
    hints = [Hint(session_id=session_id, lane=Lane.AUTO) for session_id in sessions]
    send(hints)
    return hints


def trace_slots(run_ids: Iterable[str]) -> None:
    """Begin the traces of runs that were queued: a span from the slot until now. A run's id names its slot."""
    for run_id in run_ids:
        of, _, slot = run_id.rpartition(":")
        began = datetime.fromtimestamp(int(slot) / 1000, UTC)
        spans.first_span("slot", trace_of_run(run_id), began, {"rondo.run": run_id, "rondo.automation": of})


def lag_ms(late: timedelta) -> int:
    """A run's lag in milliseconds, at least 0."""
    return max(0, round(late.total_seconds() * 1000))
