"""Look for the next work of a session, after the lock is released: one statement.

It also selects a refused turn of the same owner, for which there is room now.
"""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from sessions_app.limits import owners
from sessions_app.models import Lane, Session, SessionState, Turn
from sessions_app.postgres.statements import Statement, seconds_parameter, table
from sessions_app.turns.claim import SESSION_ID, head_of_lane, may_go_on, next_id, owner_of_session

_turn, _session = table(Turn), table(Session)


def _woken(here: Any) -> Any:
    """Select one refused turn of the same owner in another session, and clear its mark."""
    refused = _turn.alias("refused")
    # a session with a running turn is checked when that turn ends; concurrent callers skip each other's row
    other = (
        sa.select(refused.c.id)
        .join(here, refused.c.share_of == here.c.owner_id)
        .join(_session, _session.c.id == refused.c.session_id)
        .where(
            refused.c.state == sa.literal_column("'queued'"),
            here.c.active,
            here.c.running < owners.most(refused.c.lane),
            owners.may_take_slot(here.c.running),
            _session.c.state != SessionState.DELETING,
            ~sa.exists().where(
                _turn.c.session_id == refused.c.session_id, _turn.c.state == sa.literal_column("'running'")
            ),
        )
        .order_by(refused.c.lane.desc(), refused.c.id)  # "turns", of people, before "auto"
        .limit(1)
        .with_for_update(of=refused, skip_locked=True)
    )
    return (
        sa.update(_turn)
        .where(_turn.c.id == other.scalar_subquery(), _turn.c.state == sa.literal_column("'queued'"))
        .values(share_of=sa.null())
        .returning(_turn.c.session_id, _turn.c.lane)
        .cte("woken")
    )


def _next_lane_statement() -> Statement:
    """Select the lane that the session could run now, and a session of the same owner that was refused before."""
    auto, people = head_of_lane(Lane.AUTO).subquery(), head_of_lane(Lane.PEOPLE).subquery()
    begun = _turn.alias("begun")
    is_begun = sa.and_(begun.c.session_id == SESSION_ID, begun.c.state == sa.literal_column("'running'"))
    handed_back = sa.select(begun.c.lane).where(
        is_begun, begun.c.claim.is_(None), may_go_on(begun, _session.c.owner_id)
    )
    aged = sa.select(auto.c.lane).where(auto.c.queued_at < sa.func.now() - seconds_parameter("max_wait"))
    here = (
        sa.select(
            _session.c.owner_id,
            owners.is_active(_session.c.owner_id).label("active"),
            owners.count_running_turns(_session.c.owner_id).label("running"),
            sa.exists().where(is_begun).label("busy"),
            handed_back.scalar_subquery().label("handed_back"),
            sa.func.coalesce(
                aged.scalar_subquery(),
                sa.select(people.c.lane).scalar_subquery(),
                sa.select(auto.c.lane).scalar_subquery(),
            ).label("waiting"),
        )
        # no more turns run in a session that is being deleted
        .where(_session.c.id == SESSION_ID, _session.c.state != SessionState.DELETING)
        .cte("here")
    )
    woken = _woken(here)
    # while a turn runs, nothing else can: its worker asks again afterwards
    own = sa.func.coalesce(
        here.c.handed_back, sa.case((sa.and_(~here.c.busy, here.c.active), here.c.waiting))
    )
    has_slot = sa.and_(here.c.running < owners.most(here.c.waiting), owners.may_take_slot(here.c.running))
    has_room = sa.or_(here.c.handed_back.is_not(None), has_slot)
    return Statement(
        sa.union_all(
            sa.select(woken.c.session_id, woken.c.lane, sa.true().label("has_room")),
            sa.select(SESSION_ID.label("session_id"), own.label("lane"), has_room).where(own.is_not(None)),
        ),
        prepared=True,
    )


NEXT_LANE = _next_lane_statement()
# a refused turn is marked, so that the next turn of its owner that ends wakes it
MARK_REFUSED = Statement(
    sa.update(_turn)
    .where(
        _turn.c.id == next_id(),
        _turn.c.state == sa.literal_column("'queued'"),
        _turn.c.share_of.is_(None),
    )
    .values(share_of=owner_of_session())
)


def next_lane(session_id: uuid.UUID) -> list[Any]:
    """Return the sessions to wake, with `session_id` and `lane`.

    That is this session, if it could run a turn now, and before it one of the same owner that was refused for want of
    room, if there is room now. If there is none for this session, it is marked as refused.
    """
    found = _look(session_id)
    if not all(each.has_room for each in found):
        # not only if there is none now: a place that is free now may be taken when the next look comes
        MARK_REFUSED.run(session_id=session_id, max_wait=settings.AUTOMATION_MAX_WAIT, **owners.bounds())
        # the turns that left no room may have ended, and looked for refused ones, before the mark was there
        found += _look(session_id)
    return [each for each in found if each.has_room]


def _look(session_id: uuid.UUID) -> list[Any]:
    return NEXT_LANE.all(session_id=session_id, max_wait=settings.AUTOMATION_MAX_WAIT, **owners.bounds())
