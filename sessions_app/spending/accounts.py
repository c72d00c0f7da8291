"""The accounts of spending: reserve the most that a model call can cost, and settle what it did cost.

Each of both is one statement, in a commit of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import CharField, Exists, Func, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat, Now

from agent_core.spending import Account, Amount
from sessions_app.models import Agent, Allowance, Reservation, Spending, Turn, TurnState, UserLimits
from sessions_app.models.spending import REACHED
from sessions_app.spending.caps import budget_of, caps_in_words, merge_caps

RESERVE = "SELECT * FROM rondo_reserve(%s, %s, %s, %s, %s)"
SETTLE = "SELECT * FROM rondo_settle(%s, %s, %s)"
MOST_SETTLED = 500  # reservations of dead workers that one sweep settles
LONGEST_CALL = timedelta(minutes=10)  # without a turn


@dataclass(frozen=True, kw_only=True)
class CapState:
    """A cap, as `cap_rows` made it, and what is spent of it: `percent` of it, or more.

    `is_held`: a call does not fit only because of what other calls have reserved. `needs`: the most that a refused call
    can cost.
    """

    cap: Mapping[str, Any]
    tokens: int
    micro_usd: int
    percent: int = REACHED
    is_held: bool = False
    needs: Amount | None = None


def reserve(account: Account | None, amount: Amount, caps: Sequence[Mapping[str, Any]]) -> int | CapState:
    """Reserve an amount in all caps or in none. Returns the id of the reservation, or the cap that refuses it."""
    of_turn = (account.turn, account.claim) if account else (None, None)
    [row] = _call(RESERVE, *of_turn, amount.tokens, amount.micro_usd, json.dumps(caps))
    made, refused = row.pop("reservation"), row.pop("refused")
    if made:
        return int(made)
    return CapState(cap=next(each for each in caps if each["key"] == refused), needs=amount, **row)


def settle(reservation: int, used: Amount | None) -> list[CapState]:
    """Replace a reservation by what was used; None: by all of it. Returns the caps to tell of. Once only."""
    rows = _call(SETTLE, reservation, used and used.tokens, used and used.micro_usd)
    return [CapState(**row | {"cap": json.loads(row["cap"])}) for row in rows]


def _call(statement: str, *given: Any) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def abandoned() -> list[int]:
    """Return reservations whose turn does not run any more under their claim."""
    claimed = Turn.objects.filter(pk=OuterRef("turn_id"), claim=OuterRef("claim"), state=TurnState.RUNNING)
    is_over = Q(turn_id__isnull=False) | Q(created_at__lt=Now() - LONGEST_CALL)
    dead = Reservation.objects.filter(~Exists(claimed), is_over).order_by("pk")
    return list(dead.values_list("pk", flat=True)[:MOST_SETTLED])


# Marks of automations that a cap stopped: firing skips their slots until the cap begins anew, without asking again.
_STOPPED = "budget:"
LookAgain = Callable[[QuerySet[Agent], str], None]
_ON_FREED: list[LookAgain] = []


def mark_stopped(agent_id: int, automations: Iterable[str], until: str) -> None:
    """Mark these automations as stopped by a cap until a time in ISO format, so that firing skips them."""
    rows = [
        Allowance(key=f"{_STOPPED}{agent_id}:{each}", full_at=datetime.fromisoformat(until))
        for each in automations
    ]
    Allowance.objects.bulk_create(
        rows, update_conflicts=True, update_fields=["full_at"], unique_fields=["key"]
    )


def is_stopped(agent_id: str, automation: str) -> Exists:
    """Condition: the automation of these columns is marked as stopped by a cap."""
    return Exists(_marks(agent_id, automation))


def end_of_stop(agent_id: str, automation: str) -> Subquery:
    """Expression: until when a cap stops the automation of these columns."""
    return Subquery(_marks(agent_id, automation).values("full_at"))


def _marks(agent_id: str, automation: str) -> QuerySet[Allowance]:
    key = Concat(Value(_STOPPED), Cast(OuterRef(agent_id), CharField()), Value(":"), OuterRef(automation))
    return Allowance.objects.filter(key=key, full_at__gt=Now())


def stopped_until(agent_id: int, automation: str) -> datetime | None:
    """Return until when a cap stops an automation; None if none does."""
    marks = Allowance.objects.filter(key=f"{_STOPPED}{agent_id}:{automation}", full_at__gt=Now())
    return marks.values_list("full_at", flat=True).first()


def forget_stopped(agents: QuerySet[Agent], automation: str = "") -> None:
    """Remove the marks of these agents' automations, or of this one: something was changed that may free them."""
    agent = Func("key", Value(":"), Value(2), function="split_part", output_field=CharField())
    marks = Allowance.objects.filter(key__startswith=_STOPPED, key__endswith=automation and f":{automation}")
    ids = agents.order_by().values(text=Cast("pk", CharField()))
    marks.alias(agent=agent).filter(agent__in=ids).delete()
    for look_again in _ON_FREED:
        look_again(agents, automation)


def on_freed(look_again: LookAgain) -> None:
    """Call `look_again` when something was changed that may free agents' automations, or the one of this id."""
    _ON_FREED.append(look_again)


def tell_anew(scope: str, subject: object) -> None:
    """Have owners told of this subject's caps anew: they were changed."""
    Spending.objects.filter(key__startswith=f"{scope}:{subject}:", told__gt=0).update(told=0)


def caps_of_user(user_id: int, *, is_partial: bool = False) -> dict[str, str]:
    """Return the caps of a user as `caps_in_words` does."""
    stored = UserLimits.objects.filter(pk=user_id).first()
    if stored is None:
        return {}
    return caps_in_words(budget_of("user", user_id, stored.limits), is_partial=is_partial)


def set_user_caps(user_id: int, limits: object) -> UserLimits:
    """Merge caps into those of a user; null removes one. BadInput."""
    with transaction.atomic():
        stored, _ = UserLimits.objects.select_for_update().get_or_create(user_id=user_id)
        before, stored.limits = stored.limits, merge_caps(stored.limits, limits)
        stored.save(update_fields=["limits"])
        if stored.limits != before:
            forget_stopped(Agent.objects.filter(owner_id=user_id))
            tell_anew("user", user_id)
    return stored
