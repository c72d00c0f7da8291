"""Limits on unread updates, for each source and for each mailbox. The oldest are dropped, with the reason."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sessions_app.models import MailboxEvent
from sessions_app.postgres.statements import Statement, table

TOO_MANY = "too_many"
MOST_OF_A_SOURCE = 20  # unread updates of one type and source, so that one routine cannot fill the mailbox
MOST_UNREAD = 200  # unread updates in one mailbox

_mail = table(MailboxEvent)
UNREAD = (_mail.c.acknowledged_at.is_(None), _mail.c.dropped_at.is_(None))


def _ranked() -> Any:
    """The unread updates, each with a number for its source, and its rank from the newest in its source and overall."""
    # each run of an isolated routine has a session of its own, `job:<id>:<milliseconds>`: they count as one source
    source = (_mail.c.event_type, sa.func.regexp_replace(_mail.c.source_key, ":[0-9]+$", ""))
    worth = (_mail.c.priority.desc(), _mail.c.id.desc())
    return (
        sa.select(
            _mail.c.id,
            sa.func.dense_rank().over(order_by=source).label("source"),
            sa.func.row_number().over(partition_by=source, order_by=_mail.c.id.desc()).label("place"),
            sa.func.row_number().over(order_by=worth).label("overall"),
        )
        .where(_mail.c.target_id == sa.bindparam("target", type_=sa.Uuid()), *UNREAD)
        .cte("ranked")
    )


def _dropped(ranked: Any, stays: Any) -> Any:
    """Drop what does not stay. Selects how many were dropped of each source, with those that they had replaced."""
    going = (
        sa.select(_mail.c.id, ranked.c.source)
        .join(ranked, ranked.c.id == _mail.c.id)
        .where(sa.not_(stays), *UNREAD)
        .order_by(_mail.c.id)
        .with_for_update(of=_mail, skip_locked=True)
        .cte("going")
    )
    dropped = (
        sa.update(_mail)
        .where(_mail.c.id == going.c.id)
        .values(dropped_at=sa.func.now(), reason=TOO_MANY)
        .returning(going.c.source, _mail.c.lost)
        .cte("dropped")
    )
    count = sa.func.sum(dropped.c.lost + 1).label("count")
    return sa.select(dropped.c.source, count).group_by(dropped.c.source).cte("gone")


def _make_room() -> Statement:
    """Drop updates over the limits. The oldest update of the source that stays counts them in `lost`.

    Locked rows are skipped: a commit that acknowledges them at this moment has shown them.
    """
    ranked = _ranked()
    stays = sa.and_(ranked.c.place <= MOST_OF_A_SOURCE, ranked.c.overall <= MOST_UNREAD)
    gone = _dropped(ranked, stays)
    kept = sa.select(ranked.c.source, sa.func.min(ranked.c.id).label("id")).where(stays)
    oldest = kept.group_by(ranked.c.source).cte("oldest")
    # if nothing of a source stays, the newest update of the mailbox counts them
    newest = sa.select(sa.func.max(ranked.c.id)).where(stays).scalar_subquery()
    heir = sa.func.coalesce(oldest.c.id, newest)
    heirs = (
        sa.select(heir.label("id"), sa.func.sum(gone.c.count).label("count"))
        .select_from(gone.outerjoin(oldest, oldest.c.source == gone.c.source))
        .group_by(sa.literal_column("1"))
        .cte("heirs")
    )
    free = (
        sa.select(_mail.c.id, heirs.c.count)
        .join(heirs, heirs.c.id == _mail.c.id)
        .with_for_update(of=_mail, skip_locked=True)
        .cte("free")
    )
    return Statement(sa.update(_mail).where(_mail.c.id == free.c.id).values(lost=_mail.c.lost + free.c.count))


MAKE_ROOM = _make_room()
