"""What a read loop asks of the database: the events after some places, and where "now" is.

A session's windows are told what happens in it, and what is for every window of its agent (rule 9.1); a window of
the agent alone is told just that.

A place's events are read below `pg_snapshot_xmin`: what an older transaction may still add would be stepped over
otherwise. Rows that are visible but not yet safe are reported as hidden, so that the loop looks again soon.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from django.db import connection
from sqlalchemy.types import UserDefinedType

from sessions_app.events import Cursor
from sessions_app.models import Agent, Event, Pruning, Scope, Session, Turn, TurnState
from sessions_app.models.pruning import EVENTS
from sessions_app.sql import Statement, table

PAGE = 500  # events of one place and one read

Shown = uuid.UUID | int  # what a window shows: a session, or an agent alone


class _Xid8(UserDefinedType[str]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Somewhere in what is shown: what comes after `cursor` is wanted."""

    shows: Shown
    cursor: Cursor


@dataclass(kw_only=True)
class Found:
    """What came after a place. `more`: the page was full; `hidden`: the last event that is not safe to read yet.

    `gone`: there is nothing to show any more; else `agent_id` says whose it is.
    """

    agent_id: int | None = None
    events: list[Event] = field(default_factory=list)
    more: bool = False
    hidden: Cursor | None = None
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What gave a turn its input: its kind, and its run or nothing. Stored events carry the same."""

    source_type: str
    run_id: str


NOWHERE = Origin(source_type="", run_id="")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A running turn, its session, its attempt and its origin."""

    session_id: uuid.UUID
    turn: int
    attempt: int
    origin: Origin


_agent, _session, _event = table(Agent), table(Session), table(Event)
_NAMES = (
    "id",
    "xid",
    "session_id",
    "turn_id",
    "scope",
    "source_type",
    "run_id",
    "type",
    "content",
    "created_at",
)
_SAFE: Any = sa.literal_column("e.xid < pg_snapshot_xmin(pg_current_snapshot())")


def _page(place: Any, *which: Any) -> Any:
    """The first events after the place by one index; `which` is given the table of events."""
    event = _event.alias("e")
    return (
        sa.select(*(event.c[name] for name in _NAMES), _SAFE.label("safe"))
        .where(
            *(condition(event) for condition in which),
            sa.tuple_(event.c.xid, event.c.id) > sa.tuple_(place.c.xid, place.c.id),
        )
        .order_by(event.c.xid, event.c.id)
        .limit(sa.literal_column(str(PAGE)))
        .correlate(place, _agent)
        .subquery()
    )


def _found_after(place: Any) -> Any:
    """A page of what the session was told and of what every window of its agent was told, in one order.

    Two looks along two indexes: with an OR, PostgreSQL would read all that follows and sort it.
    """
    own = _page(place, lambda event: event.c.session_id == place.c.session_id)
    elsewhere = _page(
        place,
        lambda event: event.c.agent_id == _agent.c.id,
        lambda event: event.c.scope == sa.literal_column(f"'{Scope.AGENT}'"),
        lambda event: event.c.session_id.is_distinct_from(place.c.session_id),
    )
    both = sa.union_all(sa.select(own), sa.select(elsewhere)).subquery("both")
    return (
        sa.select(both)
        .order_by(both.c.xid, both.c.id)
        .limit(sa.literal_column(str(PAGE)))
        .correlate(place, _agent)
        .lateral("found")
    )


def _after() -> Statement:
    def array(name: str, kind: Any) -> Any:
        return sa.cast(sa.bindparam(name), sa.ARRAY(kind))

    place = (
        sa.func.unnest(
            array("sessions", sa.Uuid()),
            array("agents", sa.BigInteger()),
            array("xids", _Xid8()),
            array("ids", sa.BigInteger()),
        )
        .table_valued("session_id", "agent_id", "xid", "id", with_ordinality="place")
        .render_derived(name="p")
    )
    page = _found_after(place)
    found = [page.c[name].label(name) for name in _NAMES]
    whose = sa.func.coalesce(place.c.agent_id, _session.c.agent_id)
    return Statement(
        sa.select(place.c.place, _agent.c.id.label("agent_id"), page.c.safe, *found)
        .select_from(place)
        .outerjoin(_session, _session.c.id == place.c.session_id)
        .outerjoin(_agent, _agent.c.id == whose)
        .outerjoin(page, sa.true())
        .order_by(place.c.place, page.c.xid, page.c.id)
    )


AFTER = _after()


def read(places: Sequence[Place]) -> list[Found]:
    """The events after each place, in order, at most a page of each."""
    rows = AFTER.all(
        sessions=[None if isinstance(place.shows, int) else place.shows for place in places],
        agents=[place.shows if isinstance(place.shows, int) else None for place in places],
        xids=[str(place.cursor.xid) for place in places],
        ids=[place.cursor.id for place in places],
    )
    answers = [Found() for _ in places]
    counts = [0] * len(places)
    for row in rows:
        number = row.place - 1
        answer = answers[number]
        answer.agent_id, answer.gone = row.agent_id, row.agent_id is None
        if row.id is None:
            continue
        counts[number] += 1
        if row.safe:
            answer.events.append(_event_of(row))
        else:
            answer.hidden = Cursor(xid=int(row.xid), id=row.id)
    for answer, count in zip(answers, counts, strict=True):
        answer.more = count == PAGE and answer.hidden is None
    return answers


def _event_of(row: Any) -> Event:
    values = {name: getattr(row, name) for name in _NAMES}
    return Event(**values | {"agent_id": row.agent_id, "content": json.loads(row.content)})


def now() -> Cursor:
    """Where a reader begins that wants nothing of the past; what is being written at this moment comes after it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return Cursor(xid=int(cursor.fetchone()[0]), id=0)


def starting_point(resumed: Cursor | None) -> Cursor:
    """Where a stream begins: after the cursor that its reader came with, or now.

    A cursor of the future is not ours: the database is an older one, restored. It begins with all that is kept.
    """
    present = now()
    if resumed is None:
        return present
    return resumed if resumed.xid <= present.xid else Cursor(xid=0, id=0)


def horizon() -> Cursor:
    """The greatest cursor of an event that was pruned; who stands before it may have missed some.

    Ask after reading: what a read did not find any more lies behind the horizon by then.
    """
    row = Pruning.objects.filter(pk=EVENTS).values_list("horizon_xid", "horizon_id").first()
    return Cursor(xid=row[0], id=row[1]) if row else Cursor(xid=0, id=0)


def running(shown: Sequence[Shown]) -> dict[Shown, Running]:
    """The running turn of each session that has one."""
    session_ids = [each for each in shown if isinstance(each, uuid.UUID)]
    rows = Turn.objects.filter(session_id__in=session_ids, state=TurnState.RUNNING)
    return {
        row.session_id: Running(
            session_id=row.session_id, turn=row.pk, attempt=row.attempt, origin=_origin(row)
        )
        for row in rows.only("session_id", "attempt", "kind", "origin_run")
    }


def origin_of(turn_id: int) -> Origin:
    """A turn's origin; NOWHERE when it was deleted."""
    row = Turn.objects.filter(pk=turn_id).only("kind", "origin_run").first()
    return _origin(row) if row else NOWHERE


def _origin(row: Turn) -> Origin:
    return Origin(source_type=row.kind, run_id=row.origin_run)
