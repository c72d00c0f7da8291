"""Unified mode: which session a web thread shows and sends its messages to (rule 4.10).

While its agent is unified, a thread shows the agent's primary session and its messages go there; its own rows are not
used until the mode is off. Nothing of this is stored: each request reads flag and session in one statement. Toggling
the mode changes no rows but unread updates of threads (`mailbox.deposit.moving_undrained`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from django.contrib.auth import get_user_model
from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from sessions_app.exceptions import NotFound, OwnerInactive, SessionClosed, StorageFull
from sessions_app.limits import quotas
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Allowance,
    Lane,
    Session,
    SessionState,
    SessionType,
    Turn,
    TurnState,
)
from sessions_app.models.session import WEB
from sessions_app.postgres.rows import instance_of
from sessions_app.postgres.statements import Statement, table

MOST_WAITING = 100  # queued messages of one session

_agent, _allowance, _session = table(Agent), table(Allowance), table(Session)
_turn, _user = table(Turn), table(get_user_model())


def with_target(rows: QuerySet[Session]) -> QuerySet[Any]:
    """Annotate the rows with `target_id`: for a thread of a unified agent the primary session, else itself."""
    primary = Session.objects.filter(agent=OuterRef("agent"), key=PRIMARY_KEY).values("pk")[:1]
    unified = When(
        type=SessionType.SUB,
        channel=WEB,
        agent__unified_session=True,
        then=Coalesce(Subquery(primary), F("pk")),
    )
    return rows.annotate(target_id=Case(unified, default=F("pk")))


def _addressed() -> Any:
    primary, key = _session.alias("primary"), sa.func.concat(quotas.FULL, _session.c.owner_id)
    is_thread = sa.and_(
        _session.c.type == sa.literal_column(f"'{SessionType.SUB}'"),
        _session.c.channel == sa.literal_column(f"'{WEB}'"),
        _agent.c.unified_session,
    )
    of_agent = sa.and_(
        primary.c.agent_id == _session.c.agent_id, primary.c.key == sa.literal_column(f"'{PRIMARY_KEY}'")
    )
    target = sa.select(primary.c.id).where(of_agent, is_thread).correlate(_session, _agent)
    target_id = sa.func.coalesce(target.scalar_subquery(), _session.c.id)
    waiting = sa.select(_turn.c.id).where(
        _turn.c.session_id == target_id,
        _turn.c.state == sa.literal_column(f"'{TurnState.QUEUED}'"),
        _turn.c.lane == sa.literal_column(f"'{Lane.PEOPLE}'"),
    )
    first = waiting.limit(sa.literal_column(str(MOST_WAITING))).correlate(_session, _agent).subquery()
    is_full = sa.exists().where(_allowance.c.key == key, _allowance.c.full_at > sa.func.now())
    return (
        sa.select(
            *_session.c,
            target_id.label("target_id"),
            sa.select(sa.func.count()).select_from(first).scalar_subquery().label("waiting"),
            _user.c.is_active.label("owner_is_active"),
            is_full.label("owner_is_full"),
        )
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .join(_user, _user.c.id == _session.c.owner_id)
        .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
    )


_ADDRESSED = Statement(_addressed, prepared=True)  # each message begins with it


def addressed_session(session_id: uuid.UUID, owner_id: int | None = None) -> Any:
    """Return an open session with its `target_id`; with `owner_id`, only one of this user.

    `waiting`: how many messages of people wait in the target, at most MOST_WAITING.

    NotFound; SessionClosed; OwnerInactive; StorageFull.
    """
    row = _ADDRESSED.first(session_id=session_id)
    if row is None or owner_id not in (None, row.owner_id):
        raise NotFound("there is no such session")
    if not row.owner_is_active:
        raise OwnerInactive
    if row.owner_is_full:
        raise StorageFull(quotas.full_text())
    session: Any = must_be_open(instance_of(Session, row[: len(_session.c)]))
    session.target_id, session.waiting = row.target_id, row.waiting
    return session


def find_target(session_id: uuid.UUID) -> uuid.UUID:
    """Return the session that gets this session's input. As `addressed_session` raises."""
    target_id: uuid.UUID = addressed_session(session_id).target_id
    return target_id


def target_ids(session_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
    """Return the target of each session, by its id; deleted sessions are missing."""
    rows = with_target(Session.objects.filter(pk__in=list(session_ids)))
    return dict(rows.values_list("pk", "target_id"))


def must_be_open(session: Session | None) -> Session:
    """Return the session if it accepts input. NotFound; SessionClosed."""
    if session is None:
        raise NotFound("there is no such session")
    if session.state != SessionState.OPEN:
        raise SessionClosed(
            "the session is archived; open it again on its page, or by PATCH of"
            f' /api/sessions/{session.pk}/ with {{"archived": false}}'
            if session.state == SessionState.ARCHIVED
            else "the session is being deleted"
        )
    return session
