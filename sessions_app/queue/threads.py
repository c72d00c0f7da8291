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
from sqlalchemy.dialects.postgresql import ARRAY

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
from sessions_app.postgres.rows import instances_of
from sessions_app.postgres.statements import Statement, table

MOST_WAITING = 100  # queued messages of one session

_agent, _allowance, _session = table(Agent), table(Allowance), table(Session)
_turn, _user = table(Turn), table(get_user_model())


def is_redirected(session: Any, agent: Any, primary: Any) -> Any:
    """Condition to join the primary session that gets a thread's input, and is shown in its place."""
    return sa.and_(
        agent.c.unified_session,
        session.c.type == sa.literal_column(f"'{SessionType.SUB}'"),
        session.c.channel == sa.literal_column(f"'{WEB}'"),
        primary.c.agent_id == session.c.agent_id,
        primary.c.key == sa.literal_column(f"'{PRIMARY_KEY}'"),
    )


def _addressed() -> Any:
    primary = _session.alias("primary_session")
    target_id = sa.func.coalesce(primary.c.id, _session.c.id)
    queued = sa.select(_turn.c.id).where(
        _turn.c.session_id == target_id,
        _turn.c.state == sa.literal_column(f"'{TurnState.QUEUED}'"),
        _turn.c.lane == sa.literal_column(f"'{Lane.PEOPLE}'"),
    )
    first = queued.limit(sa.literal_column(str(MOST_WAITING))).correlate(_session, primary).subquery()
    key = sa.func.concat(quotas.FULL, _session.c.owner_id)
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
        .outerjoin(primary, is_redirected(_session, _agent, primary))
        .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
    )


_ADDRESSED = Statement(_addressed, prepared=True)  # each message begins with it


def addressed_session(session_id: uuid.UUID, owner_id: int | None = None) -> Any:
    """Return an open session with its `target_id`; with `owner_id`, only one of this user.

    `waiting`: how many people's messages wait in the target session, counted up to MOST_WAITING.

    NotFound; SessionClosed; OwnerInactive; StorageFull.
    """
    row = _ADDRESSED.first(session_id=session_id)
    if row is None or owner_id not in (None, row.owner_id):
        raise NotFound("there is no such session")
    if not row.owner_is_active:
        raise OwnerInactive
    if row.owner_is_full:
        raise StorageFull(quotas.full_text())
    return must_be_open(*instances_of(Session, [row]))


def find_target(session_id: uuid.UUID) -> uuid.UUID:
    """Return the session that gets this session's input. As `addressed_session` raises."""
    target_id: uuid.UUID = addressed_session(session_id).target_id
    return target_id


def _targets() -> Any:
    primary = _session.alias("primary_session")
    return (
        sa.select(_session.c.id, sa.func.coalesce(primary.c.id, _session.c.id))
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .outerjoin(primary, is_redirected(_session, _agent, primary))
        .where(_session.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.Uuid()))))
    )


_TARGETS = Statement(_targets)


def target_ids(session_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID]:
    """Return the target of each session, by its id; deleted sessions are missing."""
    return dict(_TARGETS.all(ids=list(session_ids)))


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
