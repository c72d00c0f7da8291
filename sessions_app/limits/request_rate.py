"""Rate limiting in the database: one statement for each request, so that all web processes count together.

The generic cell rate algorithm: a row holds the time at which the full allowance is available again. Each request adds
`period / limit` to it. A request that would move it more than `period` into the future is refused and adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from sessions_app.models import Allowance
from sessions_app.postgres.statements import Statement, table

MOST_FORGOTTEN = 100  # expired rows that are deleted with each new row

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
    .returning(
        sa.literal_column("xmax = 0").label("is_new"),
        sa.extract("epoch", _allowance.c.full_at - sa.func.now()).label("used"),
    )
    .cte("taken")
)
TAKE = Statement(
    sa.select(
        sa.select(_taken.c.is_new).scalar_subquery().label("is_new"),
        sa.select(_taken.c.used).scalar_subquery().label("used"),
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
    .cte("old")  # a CTE runs once; a plain subselect may run for each row
)
FORGET = Statement(sa.delete(_allowance).where(_allowance.c.key == _old.c.key))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`limit` requests in `seconds`: all at once, then one more after each `seconds / limit`."""

    limit: int
    seconds: int

    @property
    def seconds_each(self) -> float:
        """Seconds that one request uses up. Rounded down to microseconds, so that `limit` of them fit."""
        return max(self.seconds * 1_000_000 // self.limit, 1) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A counted request. `wait`: 0 when it is allowed, else the seconds until the next one is.

    `remaining` is how many further requests are allowed now, `full_in` the seconds until all of `limit` are.
    """

    rate: Rate
    wait: float
    remaining: int
    full_in: float


def take_allowance(who: str, rate: Rate) -> float:
    """Count one request. Returns 0 when it is allowed, else the seconds until the next one is."""
    return count_request(who, rate).wait


def count_request(who: str, rate: Rate) -> Taken:
    """Count one request, unless it is refused."""
    # the rate is in the key: after a change of RONDO_THROTTLE, what was used under the old rate does not count
    row = TAKE.first(key=f"{who} {rate.limit}/{rate.seconds}", each=rate.seconds_each, period=rate.seconds)
    if row is None or row.is_new is None:
        # without a wait the row is newer than our snapshot
        wait = max(float(row.wait or 0) if row else 0, 0.001)
        return Taken(rate=rate, wait=wait, remaining=0, full_in=wait + rate.seconds - rate.seconds_each)
    if row.is_new:
        FORGET.run()
    used = max(float(row.used), 0)
    left = int(
        (rate.seconds - used) / rate.seconds_each + 0.001
    )  # nothing of the last one is lost by rounding
    return Taken(rate=rate, wait=0, remaining=max(left, 0), full_in=used)
