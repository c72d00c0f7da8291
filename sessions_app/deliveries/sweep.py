"""The sweep of deliveries finds lanes whose next delivery is due and whose hint was lost or never sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog
from django.conf import settings
from django.db import connection, transaction

from sessions_app.deliveries.send import is_open
from sessions_app.hints import DeliveryLane
from sessions_app.limits import owners
from sessions_app.models import Delivery, Session
from sessions_app.postgres import statements
from sessions_app.postgres.statements import Statement, seconds_parameter, table

log = structlog.get_logger(__name__)

MOST_HINTS = 1_000  # of one sweep
HINT_AGAIN_AFTER = 2  # sweeps
SWEEP_LOCK = 0x52_6F_6E_64_6F_03  # one at a time in the whole fleet

_delivery, _session = table(Delivery), table(Session)
_SWEEP = seconds_parameter("sweep")
_COLUMNS = ("session_id", "channel", "id", "next_attempt_at", "hinted_at", "created_at")


def _is_open_in_a_lane(rows: Any) -> Any:
    return sa.and_(is_open(rows), rows.c.session_id.is_not(None))


def _overdue() -> Statement:
    # the oldest open delivery of each lane
    heads = statements.heads(_delivery, _COLUMNS, ("session_id", "channel"), ("id",), _is_open_in_a_lane)
    due = sa.func.coalesce(heads.c.next_attempt_at, heads.c.created_at + _SWEEP) <= sa.func.now()
    silent = sa.or_(
        heads.c.hinted_at.is_(None), heads.c.hinted_at < sa.func.now() - HINT_AGAIN_AFTER * _SWEEP
    )
    by_owner = sa.func.row_number().over(
        partition_by=_session.c.owner_id, order_by=(heads.c.hinted_at.nulls_first(), heads.c.id)
    )
    ranked = (
        sa.select(heads.c.id, by_owner.label("rank"))
        .join(_session, _session.c.id == heads.c.session_id)
        .where(due, silent, owners.is_active(_session.c.owner_id))
        .subquery()
    )
    # owners take turns
    chosen = sa.select(ranked.c.id).order_by(ranked.c.rank, ranked.c.id).limit(MOST_HINTS)
    return Statement(
        sa.update(_delivery)
        .where(_delivery.c.id.in_(chosen))
        .values(hinted_at=sa.func.now())
        .returning(_delivery.c.session_id, _delivery.c.channel)
    )


OVERDUE = _overdue()


def sweep_deliveries(take: Callable[[DeliveryLane], None]) -> int:
    """Give the due lanes to `take`, this process's dispatcher; returns their number.

    One process sweeps at a time. No hint is sent: a retry needs no broker and no slot of the turns.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        rows = OVERDUE.all(sweep=settings.RONDO_SWEEP_SECONDS)
    if rows:
        log.info("deliveries_swept", lanes=len(rows))
    for row in rows:
        take(DeliveryLane(session_id=row.session_id, channel=row.channel))
    return len(rows)
