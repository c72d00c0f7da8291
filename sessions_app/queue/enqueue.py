"""Queue turns: one turn of any kind, or many turns of slots, in the statement that inserts their runs."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from django.db import DEFAULT_DB_ALIAS
from django.db.models.expressions import DatabaseDefault
from sqlalchemy.dialects.postgresql import JSONB

from sessions_app.events import announce
from sessions_app.models import Agent, EventType, Lane, OnBusy, Session, Turn, TurnState
from sessions_app.postgres import event_statements
from sessions_app.postgres.statements import Statement, table

_turn, _session, _agent = table(Turn), table(Session), table(Agent)
GIVEN = ("id", "session_id", "kind", "content", "metadata", "origin_run", "due_at", "idempotency_key")
EMPTY = sa.cast(sa.literal_column("'{}'"), JSONB)


def insert_turns(rows: Any) -> tuple[Any, Any]:
    """Return two CTEs: one inserts a turn for each of the rows, the other their events. Both must be in one statement.

    The rows have the columns GIVEN, and `agent_id` and `owner_id` of their sessions.
    """
    given = {name: rows.c[name] for name in (*GIVEN, "owner_id")} | {
        "lane": sa.literal(Lane.AUTO.value),
        "on_busy": sa.literal(OnBusy.ENQUEUE.value),
        "origin_attempt": sa.literal(1),
    }
    return _insert(given).cte("new_turns"), _queued(rows)


def _insert(given: dict[str, Any]) -> Any:
    values = {
        **given,
        "state": sa.literal(TurnState.QUEUED.value),
        "usage": EMPTY,
        **{name: sa.literal(0) for name in ("attempt", "rescues", "steps_at_claim")},
        **{name: sa.literal("") for name in ("error_code", "error", "error_detail")},
    }
    return sa.insert(_turn).from_select(list(values), sa.select(*values.values()), include_defaults=False)


def _queued(turns: Any) -> Any:
    content = event_statements.object_of({"text": turns.c.content, "kind": turns.c.kind})
    return event_statements.insert_from(turns, EventType.TURN_QUEUED, content)


def _insert_one() -> Statement:
    given: dict[str, Any] = {
        name: sa.bindparam(name, type_=_turn.c[name].type) for name in (*OF_ONE, *TIMES_OF_ONE)
    }
    for name in TIMES_OF_ONE:
        given[name] = sa.func.coalesce(given[name], sa.func.now())
    home = (
        sa.select(_session.c.agent_id, _session.c.owner_id)
        .where(_session.c.id == given["session_id"])
        .cte("home")
    )
    given["owner_id"] = sa.select(home.c.owner_id).scalar_subquery()
    turns = _insert(given).returning(*_turn.c).cte("new_turns")
    agent_name = sa.select(_agent.c.name).join(home, home.c.agent_id == _agent.c.id).scalar_subquery()
    ahead = _turn.alias("ahead")  # as they were before this statement
    is_behind = sa.exists().where(
        ahead.c.session_id == given["session_id"],
        ahead.c.lane == given["lane"],
        ahead.c.state == sa.literal_column("'queued'"),
        ahead.c.host_id.is_(None),
    )
    more = agent_name.label("agent_name"), is_behind.label("is_behind")
    row = sa.select(turns.c.id, *(turns.c[name] for name in TIMES_OF_ONE), *more)
    return Statement(row.add_cte(_queued(turns)), prepared=True)


OF_ONE = (
    *("session_id", "kind", "lane", "content", "metadata", "origin_run", "origin_attempt"),
    *("on_busy", "idempotency_key"),
)
TIMES_OF_ONE = ("due_at", "queued_at")  # now unless they are given
# one turn and its event; yields its id, its times, the agent's name and whether another turn waits before it
INSERT_ONE = _insert_one()


def enqueue(turn: Turn) -> None:
    """Store a queued turn and its event, and notify windows after the commit. Sets `is_new` and `is_behind`."""
    given = {name: getattr(turn, name) for name in (*OF_ONE, *TIMES_OF_ONE)}
    times = {name: None for name in TIMES_OF_ONE if isinstance(given[name], DatabaseDefault)}
    [row] = INSERT_ONE.all(**given | times | {"metadata": json.dumps(turn.metadata)})
    for name, value in row._asdict().items():
        setattr(turn, name, value)
    turn._state.adding, turn._state.db, turn.is_new = False, DEFAULT_DB_ALIAS, True
    announce(turn.session_id)
