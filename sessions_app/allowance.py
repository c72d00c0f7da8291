"""Counting requests: one statement for each, so that any number of web processes count together.

The row holds one instant, that of the full allowance (the generic cell rate algorithm): each request moves it on by
`period / limit`, and one that would move it further than `period` ahead is refused and moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from sessions_app.models import Allowance
from sessions_app.sql import Statement, table

MOST_FORGOTTEN = 100  # rows that say nothing any more, removed along with each new one

_allowance = table(Allowance)
_SECONDS = sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.bindparam("each", type_=sa.Float()))
_PERIOD = sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.bindparam("period", type_=sa.Float()))
_KEY = sa.bindparam("key", type_=sa.Text())
_next = sa.func.greatest(_allowance.c.full_at, sa.func.now()) + _SECONDS
_taken = (
    insert(_allowance)
    .values(key=_KEY, full_at=sa.func.now() + _SECONDS)
    .on_conflict_do_update(
        index_elements=[_allowance.c.key],
        set_={"full_at": _next},
        where=_next <= sa.func.now() + _PERIOD,
    )
    .returning(sa.literal_column("xmax = 0").label("is_new"))
    .cte("taken")
)
TAKE = Statement(
    sa.select(
        sa.select(_taken.c.is_new).scalar_subquery().label("is_new"),
        sa.select(sa.extract("epoch", _next - _PERIOD - sa.func.now()))
        .where(_allowance.c.key == _KEY)
        .scalar_subquery()
        .label("wait"),
    )
)


_old = (
    sa.select(_allowance.c.key)
    .where(_allowance.c.full_at < sa.func.now())
    .order_by(_allowance.c.full_at)
    .limit(sa.literal_column(str(MOST_FORGOTTEN)))
    .with_for_update(skip_locked=True)
    .cte("old")  # looked up once; a plain subselect may be looked up for each row
)
FORGET = Statement(sa.delete(_allowance).where(_allowance.c.key == _old.c.key))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`limit` requests in `seconds`: all at once, and each again as its share of the time has passed."""

    limit: int
    seconds: int

    @property
    def each(self) -> float:
        """Seconds that one request takes up, in whole microseconds, rounded down: `limit` of them do fit."""
        return max(self.seconds * 1_000_000 // self.limit, 1) / 1_000_000


def take(who: str, rate: Rate) -> float:
    """Count one request. 0 when it is allowed, else the seconds after which the next one will be."""
    # a process of another rate counts apart: a full day's use must not shut out who may ask by the minute now
    row = TAKE.first(key=f"{who} {rate.limit}/{rate.seconds}", each=rate.each, period=rate.seconds)
    if row is None or row.is_new is None:
        return max(float(row.wait or 0) if row else 0, 0.001)  # no wait: the row is younger than our snapshot
    if row.is_new:
        FORGET.run()
    return 0.0
