"""What a read loop asks of the database: the events after some places, and where "now" is.

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
from sessions_app.models import Event, Session, Turn, TurnState
from sessions_app.sql import Statement, table

PAGE = 500  # events of one place and one read


class _Xid8(UserDefinedType[str]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Somewhere in a session's events: what comes after `cursor` is wanted."""

    session_id: uuid.UUID
    cursor: Cursor


@dataclass(kw_only=True)
class Found:
    """What came after a place. `more`: the page was full; `hidden`: the last event that is not safe to read yet."""

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
    """A running turn, its attempt and its origin."""

    turn: int
    attempt: int
    origin: Origin


_session, _event = table(Session), table(Event)
_NAMES = (
    "id",
    "xid",
    "agent_id",
    "turn_id",
    "scope",
    "source_type",
    "run_id",
    "type",
    "content",
    "created_at",
)
_SAFE: Any = sa.literal_column("e.xid < pg_snapshot_xmin(pg_current_snapshot())")


def _after() -> Statement:
    def array(name: str, kind: Any) -> Any:
        return sa.cast(sa.bindparam(name), sa.ARRAY(kind))

    wanted = sa.func.unnest(
        array("sessions", sa.Uuid()), array("xids", _Xid8()), array("ids", sa.BigInteger())
    ).table_valued("session_id", "xid", "id", with_ordinality="place")
    place = wanted.render_derived(name="p")
    event = _event.alias("e")
    page = (
        sa.select(*(event.c[name] for name in _NAMES), _SAFE.label("safe"))
        .where(
            event.c.session_id == place.c.session_id,
            sa.tuple_(event.c.xid, event.c.id) > sa.tuple_(place.c.xid, place.c.id),
        )
        .order_by(event.c.xid, event.c.id)
        .limit(sa.literal_column(str(PAGE)))
        .lateral("found")
    )
    found = [page.c[name].label(name) for name in _NAMES]
    return Statement(
        sa.select(place.c.place, (_session.c.id.is_(None)).label("gone"), page.c.safe, *found)
        .select_from(place)
        .outerjoin(_session, _session.c.id == place.c.session_id)
        .outerjoin(page, sa.true())
        .order_by(place.c.place, page.c.xid, page.c.id)
    )


AFTER = _after()


def read(places: Sequence[Place]) -> list[Found]:
    """The events after each place, in order, at most a page of each."""
    rows = AFTER.all(
        sessions=[place.session_id for place in places],
        xids=[str(place.cursor.xid) for place in places],
        ids=[place.cursor.id for place in places],
    )
    answers = [Found() for _ in places]
    counts = [0] * len(places)
    for row in rows:
        number = row.place - 1
        answer = answers[number]
        answer.gone = row.gone
        if row.id is None:
            continue
        counts[number] += 1
        if row.safe:
            answer.events.append(_event_of(row, places[number].session_id))
        else:
            answer.hidden = Cursor(xid=int(row.xid), id=row.id)
    for answer, count in zip(answers, counts, strict=True):
        answer.more = count == PAGE and answer.hidden is None
    return answers


def _event_of(row: Any, session_id: uuid.UUID) -> Event:
    values = {name: getattr(row, name) for name in _NAMES}
    return Event(**values | {"session_id": session_id, "content": json.loads(row.content)})


def now() -> Cursor:
    """Where a reader begins that wants nothing of the past; what is being written at this moment comes after it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        return Cursor(xid=int(cursor.fetchone()[0]), id=0)


def running(session_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Running]:
    """The running turn of each session that has one."""
    rows = Turn.objects.filter(session_id__in=session_ids, state=TurnState.RUNNING)
    return {
        row.session_id: Running(turn=row.pk, attempt=row.attempt, origin=_origin(row))
        for row in rows.only("session_id", "attempt", "kind", "origin_run")
    }


def origin_of(turn_id: int) -> Origin:
    """A turn's origin; NOWHERE when it was deleted."""
    row = Turn.objects.filter(pk=turn_id).only("kind", "origin_run").first()
    return _origin(row) if row else NOWHERE


def _origin(row: Turn) -> Origin:
    return Origin(source_type=row.kind, run_id=row.origin_run)
