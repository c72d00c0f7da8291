"""The accounts of caps: reserve before a model call, settle after it. Each is one statement, in a commit of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from django.db import transaction
from django.db.models import CharField, Exists, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat, Now
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.spending import Account, Amount, Budget
from sessions_app.limits.caps import caps_in_words, merge_limits
from sessions_app.models import Allowance, Reservation, Turn, TurnState, UserLimits
from sessions_app.postgres.statements import Statement, table

MOST_SETTLED = 500  # reservations of dead workers that one sweep settles
LONGEST_CALL: Any = sa.literal_column("interval '10 minutes'")  # without a turn

_turn, _reservation = table(Turn), table(Reservation)


def _function(name: str, parameters: Mapping[str, Any], columns: Mapping[str, Any]) -> Statement:
    given = (sa.bindparam(key, type_=type_) for key, type_ in parameters.items())
    made: Any = getattr(sa.func, name)(*given)
    rows = made.table_valued(*(sa.column(key, type_) for key, type_ in columns.items()))
    return Statement(sa.select(*rows.c))


_BIG = sa.BigInteger()
RESERVE = _function(
    "rondo_reserve",
    {"turn": _BIG, "claim": sa.Uuid(), "tokens": _BIG, "micro_usd": _BIG, "caps": JSONB(none_as_null=True)},
    {"reservation": _BIG, "refused": sa.Text(), "is_held": sa.Boolean(), "tokens": _BIG, "micro_usd": _BIG},
)
SETTLE = _function(
    "rondo_settle",
    {"reservation": _BIG, "tokens": _BIG, "micro_usd": _BIG},
    {"cap": JSONB(), "percent": sa.Integer(), "tokens": _BIG, "micro_usd": _BIG},
)
_runs = sa.exists().where(
    _turn.c.id == _reservation.c.turn_id,
    _turn.c.claim == _reservation.c.claim,
    _turn.c.state == sa.literal_column(f"'{TurnState.RUNNING}'"),
)
ABANDONED = Statement(
    sa.select(_reservation.c.id)
    .where(
        ~_runs,
        sa.or_(
            _reservation.c.turn_id.is_not(None),
            _reservation.c.created_at < sa.func.now() - LONGEST_CALL,
        ),
    )
    .order_by(_reservation.c.id)
    .limit(sa.literal_column(str(MOST_SETTLED)))
)


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """A cap of which this many percent are spent, and what was spent. `cap`: as `cap_rows` made it."""

    cap: Mapping[str, Any]
    percent: int
    tokens: int
    micro_usd: int


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The cap that does not allow a call, with what is spent. `is_held`: only what is reserved stands in the way."""

    cap: Mapping[str, Any]
    tokens: int
    micro_usd: int
    is_held: bool


def reserve(account: Account | None, amount: Amount, caps: Sequence[Mapping[str, Any]]) -> int | Refused:
    """Reserve an amount in all caps or in none. Returns the id of the reservation, or the cap that refuses it."""
    row = RESERVE.all(
        turn=account and account.turn,
        claim=account and account.claim,
        tokens=amount.tokens,
        micro_usd=amount.micro_usd,
        caps=json.dumps(caps),
    )[0]
    if row.reservation is not None:
        return int(row.reservation)
    cap = next(each for each in caps if each["key"] == row.refused)
    return Refused(cap=cap, tokens=row.tokens, micro_usd=row.micro_usd, is_held=row.is_held)


def settle(reservation: int, used: Amount | None) -> list[Crossed]:
    """Replace a reservation by what was used; None: by all of it. Returns the caps to tell of. Once only."""
    rows = SETTLE.all(reservation=reservation, tokens=used and used.tokens, micro_usd=used and used.micro_usd)
    return [
        Crossed(cap=json.loads(row.cap), percent=row.percent, tokens=row.tokens, micro_usd=row.micro_usd)
        for row in rows
    ]


def abandoned() -> list[int]:
    """Return reservations whose turn does not run any more under their claim."""
    return [row.id for row in ABANDONED.all()]


# Marks of automations that a cap stopped: firing skips their slots until the cap begins anew, without asking again.
_STOPPED = "budget:"


def mark_stopped(owner_id: int, automations: Iterable[str], until: str) -> None:
    """Mark these automations until a time, in ISO format."""
    rows = [
        Allowance(key=f"{_STOPPED}{owner_id}:{each}", full_at=datetime.fromisoformat(until))
        for each in automations
    ]
    Allowance.objects.bulk_create(
        rows, update_conflicts=True, update_fields=["full_at"], unique_fields=["key"]
    )


def is_stopped(owner_id: str, automation: str) -> Exists:
    """Condition: the automation of these columns is marked."""
    return Exists(_marks(owner_id, automation))


def end_of_stop(owner_id: str, automation: str) -> Subquery:
    """Expression: the end of the mark of the automation of these columns."""
    return Subquery(_marks(owner_id, automation).values("full_at"))


def _marks(owner_id: str, automation: str) -> QuerySet[Allowance]:
    key = Concat(Value(_STOPPED), Cast(OuterRef(owner_id), CharField()), Value(":"), OuterRef(automation))
    return Allowance.objects.filter(key=key, full_at__gt=Now())


def stopped_until(owner_id: int, automation: str) -> datetime | None:
    """Return the end of an automation's mark; None without one."""
    marks = Allowance.objects.filter(key=f"{_STOPPED}{owner_id}:{automation}", full_at__gt=Now())
    return marks.values_list("full_at", flat=True).first()


def forget_stopped(owner_id: int | None) -> None:
    """Remove the marks of a user's automations, of all users without one: something was changed that may free them."""
    Allowance.objects.filter(
        key__startswith=f"{_STOPPED}{'' if owner_id is None else f'{owner_id}:'}"
    ).delete()


def caps_of_user(user_id: int) -> dict[str, str]:
    """Return the caps of a user as `caps_in_words` does."""
    stored = UserLimits.objects.filter(pk=user_id).first()
    if stored is None:
        return {}
    return caps_in_words(Budget(scope="user", subject=str(user_id), name="", limits=stored.limits))


def set_user_limits(user_id: int, limits: object) -> UserLimits:
    """Merge caps into those of a user; null removes one. BadInput."""
    with transaction.atomic():
        stored, _ = UserLimits.objects.select_for_update().get_or_create(user_id=user_id)
        stored.limits = merge_limits(stored.limits, limits)
        stored.save(update_fields=["limits"])
        forget_stopped(user_id)
    return stored
