"""Events: what the windows are told, stored in the transaction of the change they tell of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from django.db import transaction
from sqlalchemy.dialects.postgresql import JSONB

from sessions_app.models import BACKGROUND, Event, EventType, Scope, Session, Turn
from sessions_app.publish import EVENTS, publisher
from sessions_app.sql import table

_event, _session = table(Event), table(Session)
VERSION = 1


def object_of(fields: Mapping[str, Any]) -> Any:
    """A JSON object of names and columns."""
    pairs: list[Any] = []
    for name, value in fields.items():
        pairs += [sa.literal_column(f"'{name}'"), value]
    return sa.func.jsonb_build_object(*pairs)


def insert_from(source: Any, event_type: EventType, content: Any) -> Any:
    """A CTE that stores one event for each turn row of `source`; `content` is a JSON expression."""
    return _insert(source, event_type, Scope.SESSION, content, sa.true()).cte(f"event_{event_type.value}")


def tell_of_background(source: Any, what: EventType, fields: Mapping[str, Any]) -> Any:
    """A CTE that tells every window of an agent of the turns of `source` that run in the background; its agents.

    With the parameter `everywhere` false it tells nobody (flag `heartbeat.broadcast_scope`).
    """
    content = object_of({"background": sa.literal_column(f"'{what.value}'"), **fields})
    in_background = _session.c.type.in_([sa.literal_column(f"'{each}'") for each in BACKGROUND])
    which = sa.and_(in_background, sa.bindparam("everywhere", type_=sa.Boolean()))
    told = _insert(source, EventType.STATUS, Scope.AGENT, content, which)
    return told.returning(_event.c.agent_id).cte("told_of_background")


def _insert(source: Any, event_type: EventType, scope: Scope, content: Any, which: Any) -> Any:
    rows = (
        sa.select(
            _session.c.agent_id,
            source.c.session_id,
            source.c.id,
            sa.literal(scope.value, sa.Text()),
            source.c.kind,
            source.c.origin_run,
            sa.literal(event_type.value, sa.Text()),
            sa.cast(content, JSONB),
        )
        .select_from(source)
        .join(_session, _session.c.id == source.c.session_id)
        .where(which)
    )
    names = ["agent_id", "session_id", "turn_id", "scope", "source_type", "run_id", "type", "content"]
    return sa.insert(_event).from_select(names, rows, include_defaults=False)


def event(turn: Turn, agent_id: int, event_type: EventType, content: dict[str, Any]) -> Event:
    """An event of a turn, not yet stored."""
    return Event(
        agent_id=agent_id,
        session_id=turn.session_id,
        turn_id=turn.pk,
        source_type=turn.kind,
        run_id=turn.origin_run,
        type=event_type,
        content=content,
    )


def background(turn: Turn, agent_id: int, what: EventType, content: dict[str, Any]) -> Event:
    """What every window of the agent is told of a turn in the background: that, and no text (rule 9.1)."""
    told = event(turn, agent_id, EventType.STATUS, {"background": what.value, **content})
    told.scope = Scope.AGENT
    return told


def queued(turn: Turn, agent_id: int) -> None:
    """Store a turn that waits for its session, with the event that says so; windows hear of it after the commit."""
    turn.save(force_insert=True)
    event(turn, agent_id, EventType.TURN_QUEUED, {"text": turn.content, "kind": turn.kind}).save(
        force_insert=True
    )
    announce(turn.session_id)


def announce(session_id: uuid.UUID, agent_id: int | None = None) -> None:
    """Tell the windows of a session, after the commit, that there is something to read.

    `agent_id`: something of it is for every window of that agent.
    """
    payload: dict[str, Any] = {"s": str(session_id)} | ({} if agent_id is None else {"a": agent_id})
    transaction.on_commit(lambda: publisher().notify(EVENTS, payload), robust=True)


def announce_change() -> None:
    """Tell every window, after the commit, to see what it shows: unified mode was toggled, or a session is gone."""
    transaction.on_commit(lambda: publisher().notify(EVENTS, {"look": "all"}), robust=True)


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where a reader stands: after this (xid, id). Rows are read below the oldest running transaction."""

    xid: int
    id: int

    def __str__(self) -> str:
        return f"{self.xid}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read `<xid>-<id>`; ValueError for anything else."""
        xid, _, number = text.partition("-")
        if not (xid.isascii() and xid.isdigit() and number.isascii() and number.isdigit()):
            raise ValueError(f"not an event cursor: {text[:60]!r}")
        if int(xid) >= 2**63 or int(number) >= 2**63:
            raise ValueError("not an event cursor: out of range")
        return cls(xid=int(xid), id=int(number))


def envelope(row: Event, agent_name: str) -> dict[str, Any]:
    """The wire form of a stored event."""
    return {
        "v": VERSION,
        "event_id": f"{row.xid}-{row.pk}",
        "timestamp": row.created_at.isoformat(),
        "agent_name": agent_name,
        "session_id": str(row.session_id),
        "scope": row.scope,
        "source_type": row.source_type,
        "run_id": row.run_id or None,
        "type": row.type,
        "content": {"turn": row.turn_id, **row.content},
    }
