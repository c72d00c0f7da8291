"""Look for more work after a session's lock is released."""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from sessions_app.limits import running_turns
from sessions_app.models import Session, SessionState, Turn
from sessions_app.postgres.statements import Statement, seconds_parameter, table
from sessions_app.turns.claim import SESSION_ID, may_go_on, next_id

HINT_AGAIN_AFTER = 1.0  # seconds
LOOK_AT = 100  # the owner's turns that waited longest; the sweep finds the others

_turn, _session = table(Turn), table(Session)
_QUEUED: Any = sa.literal_column("'queued'")
_RUNNING: Any = sa.literal_column("'running'")


def _own() -> Any:
    """Select the lane of the session's next turn if that may run now, or was handed back."""
    may_begin = sa.and_(
        _turn.c.state == _QUEUED,
        running_turns.is_active(_turn.c.owner_id),
        running_turns.has_room(running_turns.count_running(_turn.c.owner_id), _turn.c.lane),
    )
    # while a worker runs a turn, nothing else can run: that worker looks again afterwards
    is_handed_back = sa.and_(_turn.c.state == _RUNNING, _turn.c.claim.is_(None), may_go_on(_turn))
    # no more turns run in a session that is being deleted
    is_open = sa.exists().where(_session.c.id == SESSION_ID, _session.c.state != SessionState.DELETING)
    return sa.select(_turn.c.lane).where(
        _turn.c.id == next_id(lock=False), sa.or_(may_begin, is_handed_back), is_open
    )


def _another() -> Any:
    """Select another waiting session of the owner, which may have been refused for want of room.

    The session whose last hint is oldest is chosen and counts as hinted at, so that the next search finds another one.
    PostgreSQL checks `is_silent` again on the locked row: of two searches at once the second one finds another, too.
    """
    here = _session.alias("here")
    owner = sa.select(here.c.owner_id).where(here.c.id == SESSION_ID).scalar_subquery()
    turn, running = _turn.alias("waiting"), running_turns.count_running(owner)
    longest = sa.select(_turn.c.id).where(
        _turn.c.owner_id == owner, _turn.c.state == _QUEUED, _turn.c.host_id.is_(None)
    )
    busy = _turn.alias("busy")
    silent_since = sa.func.now() - seconds_parameter("again_after")
    is_silent = sa.or_(turn.c.hinted_at.is_(None), turn.c.hinted_at < silent_since)
    found = (
        sa.select(turn.c.id)
        .join(_session, _session.c.id == turn.c.session_id)
        .where(
            turn.c.id.in_(longest.order_by(_turn.c.queued_at, _turn.c.id).limit(LOOK_AT)),
            turn.c.session_id != SESSION_ID,
            is_silent,
            ~sa.exists().where(busy.c.session_id == turn.c.session_id, busy.c.state == _RUNNING),
            _session.c.state != SessionState.DELETING,
            running_turns.is_active(owner),
            running_turns.has_room(running, turn.c.lane),
        )
        .order_by(turn.c.lane.desc(), turn.c.hinted_at.nulls_first(), turn.c.id)  # "turns" before "auto"
        .limit(1)
        .with_for_update(of=turn, skip_locked=True)
    )
    hinted = sa.update(_turn).where(_turn.c.id == found.scalar_subquery(), _turn.c.state == _QUEUED)
    return hinted.values(hinted_at=sa.func.now()).returning(_turn.c.session_id, _turn.c.lane)


def _look() -> Any:
    """Select the lane in which the session's next turn may run now, and whether its owner is near a limit."""
    running = running_turns.count_running(_session.c.owner_id)
    near = running_turns.is_near_limit(running).label("is_near_limit")
    lane = _own().scalar_subquery().label("lane")
    return sa.select(_session.c.id.label("session_id"), lane, near).where(_session.c.id == SESSION_ID)


LOOK = Statement(_look, prepared=True)
ANOTHER = Statement(_another, prepared=True)


def next_lane(session_id: uuid.UUID) -> list[Any]:
    """Return the sessions to hint at, with `session_id` and `lane`.

    That is this session if its next turn may run now. If the owner is near a limit, it is also one of the owner's
    sessions that wait: a claim in it may have been refused, and then nothing else but the sweep wakes it.
    """
    bounds = running_turns.bounds()
    here = LOOK.first(session_id=session_id, max_wait=settings.AUTOMATION_MAX_WAIT, **bounds)
    if here is None:
        return []  # it was deleted
    own = [here] if here.lane else []
    if not here.is_near_limit:
        return own
    return [*ANOTHER.all(session_id=session_id, again_after=HINT_AGAIN_AFTER, **bounds), *own]
