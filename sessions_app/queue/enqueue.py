"""Insert a turn and its first event, by one statement. The turns of due slots are inserted together with their runs."""

from __future__ import annotations

import json

from django.db import DEFAULT_DB_ALIAS
from django.db.models.expressions import DatabaseDefault

from sessions_app.events import announce
from sessions_app.models import Turn


def enqueue(turn: Turn) -> None:
    """Store a queued turn and its event, and notify windows after the commit. Sets `is_new` and `is_behind`."""
    from sessions_app.queue.enqueue_statements import (  # late: SQLAlchemy is slow to load
        INSERT_ONE,
        OF_ONE,
        TIMES_OF_ONE,
    )

    given = {name: getattr(turn, name) for name in (*OF_ONE, *TIMES_OF_ONE)}
    times = {name: None for name in TIMES_OF_ONE if isinstance(given[name], DatabaseDefault)}
    [row] = INSERT_ONE.all(**given | times | {"metadata": json.dumps(turn.metadata)})
    for name, value in row._asdict().items():
        setattr(turn, name, value)
    turn._state.adding, turn._state.db, turn.is_new = False, DEFAULT_DB_ALIAS, True
    announce(turn.session_id)
