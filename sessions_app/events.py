"""Events for open windows. Each is stored in the transaction of the change it reports."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from agent_core.text.formats import utc_text
from sessions_app.models import Event, EventType, Scope, Turn
from sessions_app.postgres.notify import EVENTS, publisher

VERSION = 1


def event(turn: Turn, agent_id: int, event_type: EventType, content: dict[str, Any]) -> Event:
    """Make an event of a turn; the caller stores it."""
    return Event(
        agent_id=agent_id,
        session_id=turn.session_id,
        turn_id=turn.pk,
        source_type=turn.kind,
        run_id=turn.origin_run,
        type=event_type,
        content=content | shared_runs(turn),
    )


def shared_runs(turn: Turn) -> dict[str, Any]:
    """Return the runs that share the turn, as a part of an event's content. The envelope names a single run."""
    return {"runs": list(turn.input.runs)} if turn.input.runs else {}


def background_event(turn: Turn, agent_id: int, what: EventType, content: dict[str, Any]) -> Event:
    """Make the event that tells every window of the agent about a background turn, without text (rule 9.1)."""
    told = event(turn, agent_id, EventType.STATUS, {"background": what.value, **content})
    told.scope = Scope.AGENT
    return told


def turn_end(turn: Turn, agent_id: int) -> Event:
    """Make the last event of a turn; there is exactly one."""
    return event(turn, agent_id, EventType.TURN_END, {"state": turn.state, "error": turn.error or None})


def announce(session_id: uuid.UUID, agent_id: int | None = None, ended: Sequence[Turn] = ()) -> None:
    """After the commit, notify the windows of a session that there are new events.

    With `agent_id` every window of that agent is notified too. `ended`: the turns that the commit ends.
    """
    payload: dict[str, Any] = {"s": str(session_id)} | ({} if agent_id is None else {"a": agent_id})
    if ended:
        payload["ended"] = [turn.pk for turn in ended]
    transaction.on_commit(lambda: publisher().notify(EVENTS, payload), robust=True)


def announce_each(session_ids: Iterable[uuid.UUID]) -> None:
    """After the commit, notify the windows of these sessions that there are new events."""
    payloads = [{"s": str(session_id)} for session_id in session_ids]
    transaction.on_commit(lambda: publisher().notify(EVENTS, *payloads), robust=True)


def announce_change() -> None:
    """After the commit, have every window check which session it shows: unified mode changed, or one was deleted."""
    transaction.on_commit(lambda: publisher().notify(EVENTS, {"look": "all"}), robust=True)


@dataclass(frozen=True, kw_only=True, order=True)
class Cursor:
    """A reader's position in the events: it has read all up to this (xid, id).

    Only events of transactions older than the oldest running one are read, so that none is missed."""

    xid: int
    id: int

    def __str__(self) -> str:
        return f"{self.xid}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse `<xid>-<id>`. ValueError."""
        xid, _, number = text.partition("-")
        if not (xid.isascii() and xid.isdigit() and number.isascii() and number.isdigit()):
            raise ValueError(f"not an event cursor: {text[:60]!r}")
        if int(xid) >= 2**63 or int(number) >= 2**63:
            raise ValueError("not an event cursor: out of range")
        return cls(xid=int(xid), id=int(number))


def envelope(row: Event, agent_name: str) -> dict[str, Any]:
    """Return a stored event in the form that windows receive."""
    return {
        "v": VERSION,
        "event_id": f"{row.xid}-{row.pk}",
        "timestamp": utc_text(row.created_at),
        "agent_name": agent_name,
        "session_id": str(row.session_id),
        "scope": row.scope,
        "source_type": row.source_type,
        "run_id": row.run_id or None,
        "type": row.type,
        "content": {"turn": row.turn_id, **row.content},
    }
