"""Conditions on a turn's owner: the account must be active, and the owner has a fair share of the fleet.

A user has a limited number of running turns, of which automations may use a part. The last free slots of the fleet are
for users who have no running turn. The claim applies these limits; the search for more work and the sweep use the same
condition, so that they send no hint that would be refused. Nothing is cached (rule 10.0).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Count, Q, Sum
from django.db.models.functions import Now

from sessions_app.models import Lane, Turn, TurnState, Worker
from sessions_app.postgres.statements import table

AUTO_PART = 0.8  # the part of a user's turns that automations may use; the rest is for the user's messages
LEFT_FREE = 10  # one of so many slots of the fleet, and at least one, is kept for users with no running turn
_UNBOUNDED = 2**31 - 1

_user, _turn = table(get_user_model()), table(Turn)
MOST_OF_PEOPLE = sa.bindparam("most_of_people", type_=sa.Integer())
_MOST_OF_AUTO = sa.bindparam("most_of_auto", type_=sa.Integer())
_MOST_OF_FLEET = sa.bindparam("most_of_fleet", type_=sa.Integer())


def is_active(owner: Any) -> Any:
    """Condition: the account is active. `owner` is a column with a user's id."""
    rows: Any = sa.select(sa.literal_column("1")).where(_user.c.id == owner, _user.c.is_active)
    return rows.correlate_except(_user).exists()


def count_running(owner: Any = None) -> Any:
    """Expression: the number of running turns of an owner, or of the whole fleet."""
    turn = _turn.alias()
    running = sa.select(sa.func.count()).where(turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"))
    which = running if owner is None else running.where(turn.c.owner_id == owner)
    return which.correlate_except(turn).scalar_subquery()


def count_running_exactly(owner: Any) -> Any:
    """Expression: the same, after a wait for all other claims of the owner. The next one waits for this commit.

    The function of the database takes a lock, then counts in a snapshot of its own, so that it sees every claim that
    was committed before.
    """
    return sa.func.rondo_running_turns(owner)


def has_room(running: Any, lane: Any) -> Any:
    """Condition: one more turn of this lane may run for an owner with so many running turns."""
    most = sa.case((lane == sa.literal_column(f"'{Lane.AUTO}'"), _MOST_OF_AUTO), else_=MOST_OF_PEOPLE)
    return running < sa.case((count_running() < _MOST_OF_FLEET, most), else_=1)


def is_near_limit(running: Any) -> Any:
    """Condition: with one more turn, the owner or the fleet would be at half of its limit or above.

    Below that no turn of the owner is refused, and each has a hint on its way.
    """
    return sa.or_((running + 1) * 2 >= MOST_OF_PEOPLE, (count_running() + 1) * 2 >= _MOST_OF_FLEET)


_fleet_slots = 0  # 0: not known yet


def set_fleet_slots(slots: int) -> None:
    """Set how many turns all workers together run at a time. The worker's heartbeat calls it."""
    global _fleet_slots  # noqa: PLW0603 - one for the process, written by its heartbeat
    _fleet_slots = slots


def bounds(slots: int | None = None) -> dict[str, int]:
    """Return the limits, which are parameters of the statements that use the conditions above."""
    slots, given = _fleet_slots if slots is None else slots, settings.RONDO_TURNS_PER_USER
    fleet = max(1, slots - max(1, slots // LEFT_FREE)) if slots and given else _UNBOUNDED
    people = min(given or _UNBOUNDED, fleet)
    return {
        "most_of_people": people,
        "most_of_auto": max(1, int(people * AUTO_PART)),
        "most_of_fleet": fleet,
    }


def waits_for_own_turns() -> Q:
    """Condition on queued turns, for reports: the owner may run no more of them now."""
    alive = Now() - timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS)
    workers = Worker.objects.filter(heartbeat_at__gt=alive).aggregate(slots=Sum("slots", default=0))
    most, running = bounds(workers["slots"]), Turn.objects.filter(state=TurnState.RUNNING)
    is_full = running.count() >= most["most_of_fleet"]
    of_owner = running.order_by().values("owner_id").annotate(turns=Count("pk"))

    def at(limit: int) -> Q:
        return Q(owner_id__in=of_owner.filter(turns__gte=1 if is_full else limit).values("owner_id"))

    return at(most["most_of_people"]) | Q(lane=Lane.AUTO) & at(most["most_of_auto"])
