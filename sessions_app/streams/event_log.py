"""Reads of the event table: the events after several positions, and the current cursor.

Events are read below `pg_snapshot_xmin`: otherwise a cursor could pass events that an older transaction still adds.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from sessions_app.events import Cursor
from sessions_app.models import Event, Pruning
from sessions_app.models.process import EVENTS
from sessions_app.postgres.rows import fetch

PAGE = 100  # events for one position and one read
LARGEST_PAGE = 1024 * 1024  # bytes of their contents; a page has at least one event

# two queries along two indexes: with an OR, PostgreSQL would read and sort all later events
_AFTER = f"""
    SELECT found.*, p.place
    FROM unnest(%s::uuid[], %s::bigint[], %s::xid8[], %s::bigint[])
        WITH ORDINALITY AS p (session_id, agent_id, xid, id, place)
    CROSS JOIN LATERAL (
        SELECT page.*, page.xid < pg_snapshot_xmin(pg_current_snapshot()) AS safe, count(*) OVER () AS there,
            sum(page.size) OVER (ORDER BY page.xid, page.id) AS up_to
        FROM (
            (SELECT e.*, octet_length(e.content::text) AS size FROM sessions_app_event e
             WHERE e.session_id = p.session_id AND (e.xid, e.id) > (p.xid, p.id)
             ORDER BY e.xid, e.id LIMIT {PAGE})
            UNION ALL
            (SELECT e.*, octet_length(e.content::text) FROM sessions_app_event e
             WHERE e.agent_id = p.agent_id AND e.scope = 'agent' AND e.session_id IS DISTINCT FROM p.session_id
                AND (e.xid, e.id) > (p.xid, p.id)
             ORDER BY e.xid, e.id LIMIT {PAGE})
            ORDER BY xid, id LIMIT {PAGE}
        ) page
    ) found
    WHERE found.up_to - found.size < {LARGEST_PAGE}
    ORDER BY p.place, found.xid, found.id
"""  # noqa: S608 - numbers of ours


@dataclass(frozen=True, kw_only=True)
class Position:
    """A position in a stream of events: of a session, of all windows of an agent (rule 9.1), or of both."""

    session_id: uuid.UUID | None = None
    agent_id: int | None = None
    cursor: Cursor


@dataclass(kw_only=True)
class EventPage:
    """The events after a position, each with its `size` in bytes.

    `more`: there are more to read at once. `hidden`: there are more that are not safe to read yet.
    """

    events: list[Any] = field(default_factory=list)
    more: bool = False
    hidden: bool = False


def read_events(positions: Sequence[Position]) -> list[EventPage]:
    """Return the events after each position, in order, at most a page of each."""
    pages = [EventPage() for _ in positions]
    parameters = [
        [each.session_id for each in positions],
        [each.agent_id for each in positions],
        [str(each.cursor.xid) for each in positions],
        [each.cursor.id for each in positions],
    ]
    row: Any
    for row in Event.objects.raw(_AFTER, parameters):
        page = pages[row.place - 1]
        if row.safe:
            page.events.append(row)
            page.more = row.there == PAGE or len(page.events) < row.there
        else:
            page.hidden, page.more = True, False
    return pages


def now() -> Cursor:
    """Return the current cursor: all events that are committed later come after it."""
    [(xid,)] = fetch("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
    return Cursor(xid=int(xid), id=0)


def horizon() -> Cursor:
    """Return the greatest cursor of a pruned event; a reader before it may have missed events.

    Call it after reading: events that a read did not find because of pruning are then before the horizon.
    """
    row = Pruning.objects.filter(pk=EVENTS).values_list("horizon_xid", "horizon_id").first()
    return Cursor(xid=row[0], id=row[1]) if row else Cursor(xid=0, id=0)


# a row that is committed is always older than this, unless another server wrote it
_FUTURE = "pg_snapshot_xmax(pg_current_snapshot())"


def forget_events_of_another_server(**_: Any) -> None:
    """Remove events of the future; `migrate` ends with it. Windows then begin with the events that are left.

    They are left in a new database by a restored dump: each server counts transactions from the beginning. Windows
    would wait for them, and be sent them much later.
    """
    events, pruning = Event._meta.db_table, Pruning._meta.db_table
    with connection.cursor() as cursor:
        if {events, pruning} <= set(connection.introspection.table_names(cursor)):
            cursor.execute(f"DELETE FROM {events} WHERE xid >= {_FUTURE}")  # noqa: S608 - names of ours
            cursor.execute(
                f"UPDATE {pruning} SET horizon_xid = 0, horizon_id = 0"  # noqa: S608
                f" WHERE horizon_xid::text::xid8 >= {_FUTURE}"
            )
