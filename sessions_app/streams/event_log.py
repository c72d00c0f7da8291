"""The queries of the hub: the events after several positions, and the current cursor.

The windows of a session get its events and those for every window of its agent (rule 9.1). A window of the agent gets
only the latter.

Events are read below `pg_snapshot_xmin`: otherwise the cursor could pass events that an older transaction still adds.
Rows that are visible but not yet safe are reported as hidden, so that the hub reads again soon.
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
from sessions_app.postgres.statements import Statement, table

PAGE = 100  # events for one position and one read
LARGEST_PAGE = 1024 * 1024  # bytes of their contents; a page has at least one event

Topic = uuid.UUID | int  # what a window shows: a session or an agent


class _Xid8(UserDefinedType[str]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


@dataclass(frozen=True, kw_only=True)
class Position:
    """A position in the events of a topic: read what follows `cursor`."""

    shows: Topic
    cursor: Cursor


@dataclass(kw_only=True)
class EventPage:
    """The events after a position. `more`: the page was full. `hidden`: the last event that is not safe to read yet.

    `sizes`: bytes of each event's content, by its id. `gone`: the session or agent was deleted; else `agent_id` is its
    agent.
    """

    agent_id: int | None = None
    events: list[Event] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    more: bool = False
    hidden: Cursor | None = None
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The source of a turn's input: its kind, and its run, if any. Stored events have the same fields."""

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
_NAMES = tuple(column.name for column in _event.c if column is not _event.c.agent_id)
_SAFE: Any = sa.literal_column("e.xid < pg_snapshot_xmin(pg_current_snapshot())")


def _page(place: Any, *which: Any) -> Any:
    """The first events after the position along one index; `which` are conditions on the events."""
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
    """A page of the events of the session and of those for every window of its agent, in one order.

    Two queries along two indexes: with an OR, PostgreSQL would read and sort all later events.
    """
    own = _page(place, lambda event: event.c.session_id == place.c.session_id)
    of_agent = _page(
        place,
        lambda event: event.c.agent_id == _agent.c.id,
        lambda event: event.c.scope == sa.literal_column(f"'{Scope.AGENT}'"),
        lambda event: event.c.session_id.is_distinct_from(place.c.session_id),
    )
    both = sa.union_all(sa.select(own), sa.select(of_agent)).subquery("both")
    first = sa.select(both).order_by(both.c.xid, both.c.id).limit(sa.literal_column(str(PAGE)))
    page = first.correlate(place, _agent).subquery("page")
    size = sa.func.octet_length(sa.cast(page.c.content, sa.Text())).label("size")
    up_to = sa.func.sum(size.element).over(order_by=(page.c.xid, page.c.id)).label("up_to")
    measured = sa.select(page, size, up_to, sa.func.count().over().label("there")).subquery("measured")
    fits = measured.c.up_to - measured.c.size < sa.literal_column(str(LARGEST_PAGE))
    return sa.select(measured).where(fits).lateral("found")


def array_parameter(name: str, kind: Any) -> Any:
    """A bind parameter that is an array of this type."""
    return sa.cast(sa.bindparam(name), sa.ARRAY(kind))


def _after() -> Statement:
    place = (
        sa.func.unnest(
            array_parameter("sessions", sa.Uuid()),
            array_parameter("agents", sa.BigInteger()),
            array_parameter("xids", _Xid8()),
            array_parameter("ids", sa.BigInteger()),
        )
        .table_valued("session_id", "agent_id", "xid", "id", with_ordinality="place")
        .render_derived(name="p")
    )
    page = _found_after(place)
    found = [page.c[name].label(name) for name in _NAMES]
    whose = sa.func.coalesce(place.c.agent_id, _session.c.agent_id)
    return Statement(
        sa.select(
            place.c.place, _agent.c.id.label("agent_id"), page.c.safe, page.c.size, page.c.there, *found
        )
        .select_from(place)
        .outerjoin(_session, _session.c.id == place.c.session_id)
        .outerjoin(_agent, _agent.c.id == whose)
        .outerjoin(page, sa.true())
        .order_by(place.c.place, page.c.xid, page.c.id)
    )


AFTER = _after()


def read_events(positions: Sequence[Position]) -> list[EventPage]:
    """The events after each position, in order, at most a page of each."""
    rows = AFTER.all(
        sessions=[None if isinstance(each.shows, int) else each.shows for each in positions],
        agents=[each.shows if isinstance(each.shows, int) else None for each in positions],
        xids=[str(each.cursor.xid) for each in positions],
        ids=[each.cursor.id for each in positions],
    )
    pages = [EventPage() for _ in positions]
    left = [0] * len(positions)  # events of the page that did not fit in LARGEST_PAGE
    for row in rows:
        number = row.place - 1
        page = pages[number]
        page.agent_id, page.gone = row.agent_id, row.agent_id is None
        if row.id is None:
            continue
        left[number] = (left[number] or row.there) - 1
        page.more = page.more or row.there == PAGE
        if row.safe:
            page.events.append(_event_of(row))
            page.sizes[row.id] = row.size
        else:
            page.hidden = Cursor(xid=int(row.xid), id=row.id)
    for page, cut in zip(pages, left, strict=True):
        page.more = (page.more or cut > 0) and page.hidden is None
    return pages


def _event_of(row: Any) -> Event:
    values = {name: getattr(row, name) for name in _NAMES}
    return Event(**values | {"agent_id": row.agent_id, "content": json.loads(row.content)})


def now() -> Cursor:
    """The current cursor: all events that are committed later come after it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return Cursor(xid=int(cursor.fetchone()[0]), id=0)


def starting_point(resumed: Cursor | None) -> Cursor:
    """Where a stream begins: after the cursor that the client resumes from, or now.

    A cursor of the future means that an older database was restored: the stream then begins with all stored events.
    """
    present = now()
    if resumed is None:
        return present
    return resumed if resumed.xid <= present.xid else Cursor(xid=0, id=0)


def horizon() -> Cursor:
    """The greatest cursor of a pruned event; a reader before it may have missed events.

    Call it after reading: events that a read did not find because of pruning are then before the horizon.
    """
    row = Pruning.objects.filter(pk=EVENTS).values_list("horizon_xid", "horizon_id").first()
    return Cursor(xid=row[0], id=row[1]) if row else Cursor(xid=0, id=0)


def running_turns(shown: Sequence[Topic]) -> dict[Topic, Running]:
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
