"""The sweep of deliveries: lanes whose next parcel is due and that nobody was hinted at, or whose hint was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog
from django.conf import settings
from django.db import connection, transaction

from sessions_app import sql
from sessions_app.claim import seconds
from sessions_app.models import Delivery
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.sql import Statement, table
from sessions_app.wake import PostLane

log = structlog.get_logger(__name__)

MOST_HINTS = 1_000  # of one sweep
HINT_AGAIN_AFTER = 2  # sweeps
SWEEP_LOCK = 0x52_6F_6E_64_6F_03  # one at a time in the whole fleet

_delivery = table(Delivery)
_SWEEP = seconds("sweep")
_COLUMNS = ("session_id", "channel", "id", "next_attempt_at", "hinted_at", "created_at")


def _on_the_way(rows: Any) -> Any:
    state = rows.c.state.in_([sa.literal_column(f"'{state}'") for state in ON_THE_WAY])
    return sa.and_(state, rows.c.session_id.is_not(None))


def _overdue() -> Statement:
    # the oldest on the way of each lane
    heads = sql.heads(_delivery, _COLUMNS, ("session_id", "channel"), ("id",), _on_the_way)
    due = sa.func.coalesce(heads.c.next_attempt_at, heads.c.created_at + _SWEEP) <= sa.func.now()
    silent = sa.or_(
        heads.c.hinted_at.is_(None), heads.c.hinted_at < sa.func.now() - HINT_AGAIN_AFTER * _SWEEP
    )
    chosen = (
        sa.select(heads.c.id)
        .where(due, silent)
        .order_by(heads.c.hinted_at.nulls_first(), heads.c.id)
        .limit(MOST_HINTS)
    )
    return Statement(
        sa.update(_delivery)
        .where(_delivery.c.id.in_(chosen))
        .values(hinted_at=sa.func.now())
        .returning(_delivery.c.session_id, _delivery.c.channel)
    )


OVERDUE = _overdue()


def sweep(take: Callable[[PostLane], None]) -> int:
    """Give this process's postman every lane that is due and that nobody woke; their number.

    One process does it at a time. No hint is sent: a retry waits for no broker, nor for a slot.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        rows = OVERDUE.all(sweep=settings.RONDO_SWEEP_SECONDS)
    if rows:
        log.info("deliveries_swept", lanes=len(rows))
    for row in rows:
        take(PostLane(session_id=row.session_id, channel=row.channel))
    return len(rows)
