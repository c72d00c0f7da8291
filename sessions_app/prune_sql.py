"""The shapes of pruning's statements: a window of a key, a deletion of what nobody holds, owners by their key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from sessions_app.models.turn import ENDED_STATES
from sessions_app.sql import Statement

LIMIT = sa.bindparam("limit", type_=sa.Integer())
IDS = sa.bindparam("ids", type_=sa.ARRAY(sa.BigInteger()))
HOUR: Any = sa.literal_column("interval '1 hour'")


def among(column: Any, ids: Any = IDS) -> Any:
    """It is one of `:ids`."""
    return column == sa.any_(ids)


def old(instant: Any) -> Any:
    """It lies more than `:days` back."""
    return instant < sa.func.now() - sa.func.make_interval(0, 0, 0, sa.bindparam("days", type_=sa.Integer()))


def ended(turn: Any) -> Any:
    """The turn is in a state that nothing leads out of."""
    return turn.c.state.in_([sa.literal_column(f"'{state}'") for state in ENDED_STATES])


def window(rows: Any, born: str, over: Callable[[Any], Any], beside: Any = None) -> Statement:
    """What an AgeWalk reads of `rows`; `beside` names a table and the condition that joins it, for `over` to ask."""
    page = (
        sa.select(rows)
        .where(rows.c.id > sa.bindparam("after", type_=sa.BigInteger()))
        .order_by(rows.c.id)
        .limit(LIMIT)
        .subquery("page")
    )
    source = page if beside is None else page.join(beside[0], beside[1](page))
    return Statement(
        sa.select(
            page.c.id,
            sa.not_(old(page.c[born])).label("young"),
            sa.func.coalesce(over(page), sa.false()).label("over"),
        )
        .select_from(source)
        .order_by(page.c.id)
    )


def delete_free(key: Any, which: Any, *more: Any) -> Statement:
    """Delete rows that nobody else has locked; answers their `id`, and `more` of them."""
    free = sa.select(key).where(which).order_by(key).with_for_update(skip_locked=True)
    rows = key.table
    return Statement(sa.delete(rows).where(key.in_(free.scalar_subquery())).returning(key.label("id"), *more))


def keys(key: Any) -> Statement:
    """The owners of an OwnerWalk."""
    after = sa.bindparam("after", type_=key.type)
    return Statement(sa.select(key.label("id")).where(key > after).order_by(key).limit(LIMIT))


def of_owners(key: Any, beyond: Callable[[Any], Any]) -> Statement:
    """The rows of each of `:owners` that `beyond` selects, the oldest first; it is given a table of one `id`."""
    given = sa.func.unnest(sa.bindparam("owners", type_=sa.ARRAY(key.type)))
    owner = given.table_valued(sa.column("id", key.type), name="owner").render_derived()
    rows = beyond(owner).limit(LIMIT).correlate(owner).lateral("beyond")
    return Statement(
        sa.select(owner.c.id.label("owner"), rows.c.id).select_from(owner.join(rows, sa.true())).limit(LIMIT)
    )
