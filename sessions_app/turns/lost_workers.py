"""When a worker counts as lost, so that other workers rescue its turns (rule 1.8)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from django.conf import settings

from sessions_app.models import Worker
from sessions_app.postgres.statements import seconds_parameter, table

HEARTBEATS_OF_A_BREAK = 2  # heartbeats that a worker misses before it counts as having been away
ASKER = sa.bindparam("worker", type_=sa.Uuid())

_worker = table(Worker)


def worker_is_gone(worker: Any) -> Any:
    """Condition: the worker sent no heartbeat for `lost_after` seconds, while the server and the asking worker were up.

    After an outage every heartbeat is old, so the first worker that is back must give the others time to return.
    """
    lost, asker = sa.func.now() - seconds_parameter("lost_after"), _worker.alias()
    alive = sa.exists().where(_worker.c.id == worker, _worker.c.heartbeat_at > lost)
    silent = asker.c.heartbeat_at < sa.func.now() - seconds_parameter("break_after")
    was_away = sa.exists().where(asker.c.id == ASKER, sa.or_(silent, asker.c.steady_since > lost))
    return sa.and_(~alive, ~was_away, sa.func.pg_postmaster_start_time() < lost)


def limits_of_silence() -> dict[str, float]:
    """Return the parameters of `worker_is_gone`, in seconds."""
    lost_after = settings.RONDO_WORKER_LOST_SECONDS
    return {
        "lost_after": lost_after,
        "break_after": min(HEARTBEATS_OF_A_BREAK * settings.RONDO_HEARTBEAT_SECONDS, lost_after),
    }
