"""Conditions on a turn's owner: the account must be active, and only so many turns of one user run at a time.

The last free slots of the fleet are for users who have no running turn.

Each statement reads both from the database; nothing is cached (rule 10.0). A running turn counts by its `share_of`. A
queued turn that was refused, or whose session got no hint, has it too, so that the next turn of its owner that ends
can wake it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.contrib.auth import get_user_model

from sessions_app.models import Lane, Session, Turn, TurnState
from sessions_app.postgres.statements import table

AUTO_PART = 0.8  # the part of a user's turns that automations may use; the rest is for the user's messages
LEFT_FREE = 10  # one of so many slots of the fleet, and at least one, is kept for users with no running turn
_UNBOUNDED = 2**31 - 1

_user, _session, _turn = table(get_user_model()), table(Session), table(Turn)
_PEOPLE = sa.bindparam("most_of_people", type_=sa.Integer())
MOST_OF_AUTO = sa.bindparam("most_of_auto", type_=sa.Integer())
MOST_OF_ALL = sa.bindparam("most_of_all", type_=sa.Integer())
HAS_ROOM = "rondo_has_room"  # a function of the database; the first migration creates it


def is_active(owner: Any) -> Any:
    """Condition: the account is active. `owner` is a column with a user's id."""
    rows: Any = sa.select(sa.literal_column("1")).where(_user.c.id == owner, _user.c.is_active)
    return rows.correlate_except(_user).exists()


def of_session_is_active(session_id: Any) -> Any:
    """Condition: the account that the session belongs to is active."""
    session = _session.alias()
    rows: Any = sa.select(sa.literal_column("1")).join_from(session, _user, _user.c.id == session.c.owner_id)
    return rows.where(session.c.id == session_id, _user.c.is_active).correlate_except(session, _user).exists()


def count_running_turns(owner: Any) -> Any:
    """Expression: the number of the owner's running turns in the whole fleet. It counts no further than the bound."""
    turn = _turn.alias()
    some = (
        sa.select(sa.literal_column("1"))
        .where(turn.c.share_of == owner, turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"))
        .limit(_PEOPLE)
        .correlate_except(turn)
        .subquery()
    )
    return sa.select(sa.func.count()).select_from(some).scalar_subquery()


def all_running() -> Any:
    """Select `owner_id` and `turns`, the number of running turns of each owner that has any."""
    running = (_turn.c.share_of.is_not(None), _turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"))
    number = sa.func.count().label("turns")
    return sa.select(_turn.c.share_of.label("owner_id"), number).where(*running).group_by(_turn.c.share_of)


def most(lane: Any) -> Any:
    """Expression: a turn of this lane begins only while fewer turns of its owner run."""
    if lane is Lane.PEOPLE:
        return _PEOPLE
    return sa.case((lane == sa.literal_column(f"'{Lane.AUTO}'"), MOST_OF_AUTO), else_=_PEOPLE)


def may_take_slot(running: Any) -> Any:
    """Condition: an owner with so many running turns may take one of the fleet's free slots."""
    turn = _turn.alias()
    some = (
        sa.select(sa.literal_column("1"))
        .where(turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"))
        .limit(MOST_OF_ALL)
        .subquery()
    )
    of_all = sa.select(sa.func.count()).select_from(some).scalar_subquery()
    return sa.case((running == 0, sa.true()), else_=of_all < MOST_OF_ALL)


def has_room(owner: Any, lane: Any) -> Any:
    """Expression: one more turn of this lane may run. It takes the owner's lock until the commit.

    So the claims of one owner are made one at a time. Each statement of a volatile function has a snapshot of its own:
    it counts all that was claimed before it got the lock.
    """
    return getattr(sa.func, HAS_ROOM)(owner, most(lane), MOST_OF_ALL)


_most_in_fleet = _UNBOUNDED  # turns that leave some of the fleet's slots free


def set_fleet_slots(slots: int) -> None:
    """Set how many turns all workers together run at a time. The worker's heartbeat calls it."""
    global _most_in_fleet  # noqa: PLW0603 - one for the process, written by its heartbeat
    _most_in_fleet = max(1, slots - max(1, slots // LEFT_FREE))


def bounds() -> dict[str, int]:
    """Return the parameters of statements that use the bound."""
    given = settings.RONDO_TURNS_PER_USER
    of_all = _most_in_fleet if given else _UNBOUNDED
    whole = min(given, of_all) if given else _UNBOUNDED
    return {
        "most_of_people": whole,
        "most_of_auto": max(1, int(whole * AUTO_PART)),
        "most_of_all": of_all,
    }
