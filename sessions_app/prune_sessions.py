"""Removing archived sessions of jobs: by age, and by how many one job has (rule 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from django.conf import settings

from sessions_app.delete import remove_archived
from sessions_app.models import Session, SessionState, SessionType
from sessions_app.prune import Step
from sessions_app.sql import Statement, table

AT_ONCE = 20  # sessions of one batch: each takes its turns, messages and events along
KEPT_PER_JOB = 50  # sessions of one job, however young
_session = table(Session)
_ranked = (
    sa.select(
        _session.c.id,
        _session.c.updated_at,
        sa.func.row_number()
        .over(partition_by=[_session.c.agent_id, _session.c.chat_id], order_by=_session.c.updated_at.desc())
        .label("place"),
    )
    .where(
        _session.c.type == sa.literal_column(f"'{SessionType.JOB}'"),
        _session.c.state == sa.literal_column(f"'{SessionState.ARCHIVED}'"),
    )
    .subquery()
)
_days, _keep = (sa.bindparam(name, type_=sa.Integer()) for name in ("days", "keep"))
OVER = Statement(
    sa.select(_ranked.c.id)
    .where(
        sa.or_(
            sa.and_(_days > 0, _ranked.c.updated_at < sa.func.now() - sa.func.make_interval(0, 0, 0, _days)),
            sa.and_(_keep > 0, _ranked.c.place > _keep),
        )
    )
    .order_by(_ranked.c.updated_at)
    .limit(sa.bindparam("limit", type_=sa.Integer()))
)


@dataclass(frozen=True, kw_only=True)
class JobSessionsWalk:
    """Sessions of background jobs that ended long ago, or that later ones of the same job have followed."""

    name: str = "job sessions"

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> Step:
        """The oldest of those that may go. The walk begins anew each time: what went is not there any more."""
        given = {"days": settings.RONDO_KEEP_JOB_SESSIONS_DAYS, "keep": KEPT_PER_JOB}
        most = limit if dry else min(limit, AT_ONCE)
        ids = [row.id for row in OVER.all(limit=most, **given)]
        if dry:
            return Step(removed=len(ids))
        gone = remove_archived(ids)
        return Step(removed=gone, position=position, more=gone == most)
