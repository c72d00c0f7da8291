"""The first statement of a commit: it increases the session's revision and assigns the seqs of the new messages.

It also returns what the commit would otherwise read: whether the turn has guests, and which session a thread shows.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.exceptions import Stale
from sessions_app.models import PRIMARY_KEY, Agent, Session, SessionType, Turn, TurnState
from sessions_app.models.session import WEB
from sessions_app.postgres.statements import Statement, table
from sessions_app.single_line import one_line
from sessions_app.turns.kinds import is_persons

TITLE_LENGTH = 80


@dataclass(frozen=True, kw_only=True)
class AdvancedSession:
    """A session after its revision was increased.

    `shown_in`: for a thread of a unified agent, the primary session that it shows, and `shown_after_seq` the last
    message there; else None.
    """

    first_seq: int
    has_guests: bool
    shown_in: uuid.UUID | None
    shown_after_seq: int | None


_session, _guest, _agent = table(Session), table(Turn), table(Agent)


def _of_primary_behind(column: str) -> Any:
    """Select a column of the primary session that a thread of a unified agent shows; null for other sessions."""
    primary = _session.alias("primary_session")
    return (
        sa.select(primary.c[column])
        .join(_agent, _agent.c.id == primary.c.agent_id)
        .where(
            _session.c.type == sa.literal_column(f"'{SessionType.SUB}'"),
            _session.c.channel == sa.literal_column(f"'{WEB}'"),
            _agent.c.id == _session.c.agent_id,
            _agent.c.unified_session,
            primary.c.key == sa.literal_column(f"'{PRIMARY_KEY}'"),
        )
        .correlate(_session)
        .scalar_subquery()
    )


ADVANCE = Statement(
    sa.update(_session)
    .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
    .values(
        revision=_session.c.revision + 1,
        last_seq=_session.c.last_seq + sa.bindparam("count", type_=sa.BigInteger()),
        updated_at=sa.func.now(),
        title=sa.case(
            (_session.c.title == "", sa.bindparam("title", type_=sa.Text())), else_=_session.c.title
        ),
        last_route=sa.func.coalesce(
            sa.cast(sa.bindparam("route", type_=sa.Text()), JSONB), _session.c.last_route
        ),
    )
    .returning(
        _session.c.last_seq,
        # most turns have no guests; only the turn's own worker adds any, so the answer stays true
        sa.exists()
        .where(
            _guest.c.session_id == _session.c.id,
            _guest.c.host_id == sa.bindparam("turn_id", type_=sa.BigInteger()),
            _guest.c.state == sa.literal_column(f"'{TurnState.QUEUED}'"),
        )
        .correlate(_session)
        .label("has_guests"),
        _of_primary_behind("id").label("shown_in"),
        _of_primary_behind("last_seq").label("shown_after_seq"),
    )
)


def advance_session(turn: Turn, count: int, route: dict[str, Any] | None) -> AdvancedSession:
    """Increase the session's revision by one and its last seq by `count`. Stale if the session is gone."""
    by_person = is_persons(turn)
    row = ADVANCE.first(
        session_id=turn.session_id,
        turn_id=turn.pk,
        count=count,
        title=one_line(turn.content, TITLE_LENGTH) if by_person else "",
        route=json.dumps(route) if by_person and route is not None else None,
    )
    if row is None:
        raise Stale
    return AdvancedSession(
        first_seq=int(row.last_seq) - count + 1,
        has_guests=row.has_guests,
        shown_in=row.shown_in,
        shown_after_seq=row.shown_after_seq,
    )
