"""Events that are stored by the statement that makes the change.

A module of its own, so that `events` does not load SQLAlchemy, which is slow to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from sessions_app.models import BACKGROUND, Event, EventType, Scope, Session
from sessions_app.models.turn_input import shared_runs_of
from sessions_app.postgres.statements import table

_event, _session = table(Event), table(Session)


def object_of(fields: Mapping[str, Any], build: Any = sa.func.jsonb_build_object) -> Any:
    """Build a JSON object from names and columns."""
    pairs: list[Any] = []
    for name, value in fields.items():
        pairs += [sa.literal_column(f"'{name}'"), value]
    return build(*pairs)


def insert_from(source: Any, event_type: EventType, content: Any) -> Any:
    """Return a CTE that stores one event for each turn row of `source`, which may have the session's `agent_id`, too.

    `content` is a JSON expression.
    """
    return _insert(source, event_type, Scope.SESSION, content, sa.true()).cte(f"event_{event_type.value}")


def tell_of_background(source: Any, what: EventType, fields: Mapping[str, Any]) -> Any:
    """Return a CTE that stores an event of scope `agent` for each background turn of `source`, and yields the agents.

    It stores nothing when the parameter `everywhere` is false (flag `heartbeat.broadcast_scope`).
    """
    content = object_of({"background": sa.literal_column(f"'{what.value}'"), **fields})
    in_background = _session.c.type.in_([sa.literal_column(f"'{each}'") for each in BACKGROUND])
    which = sa.and_(in_background, sa.bindparam("everywhere", type_=sa.Boolean()))
    told = _insert(source, EventType.STATUS, Scope.AGENT, content, which)
    return told.returning(_event.c.agent_id).cte("told_of_background")


def _insert(source: Any, event_type: EventType, scope: Scope, content: Any, which: Any) -> Any:
    is_known = "agent_id" in source.c
    rows = (
        sa.select(
            (source if is_known else _session).c.agent_id,
            source.c.session_id,
            source.c.id,
            sa.literal(scope.value, sa.Text()),
            source.c.kind,
            source.c.origin_run,
            sa.literal(event_type.value, sa.Text()),
            _with_shared_runs(sa.cast(content, JSONB), source),
        )
        .select_from(source if is_known else source.join(_session, _session.c.id == source.c.session_id))
        .where(which)
    )
    names = ["agent_id", "session_id", "turn_id", "scope", "source_type", "run_id", "type", "content"]
    return sa.insert(_event).from_select(names, rows, include_defaults=False)


def _with_shared_runs(content: Any, source: Any) -> Any:
    """Do in SQL what `shared_runs` of `sessions_app.events` does. Few turns have any; `||` writes the object again."""
    runs = shared_runs_of(source.c.metadata)
    return sa.case((runs.is_not(None), content.op("||")(object_of({"runs": runs}))), else_=content)
