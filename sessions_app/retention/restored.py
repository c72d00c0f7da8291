"""Removes the events of another server after its dump was restored into a new database.

Events are read in the order of their transactions, and each server counts transactions from the beginning. Those of
the old server would lie in the future of the new one: windows would wait for them, and be sent them much later.
"""

from __future__ import annotations

from typing import Any

from django.db import connection

from sessions_app.models import Event, Pruning

# a row that is committed is always older than this, unless another server wrote it
_FUTURE = "pg_snapshot_xmax(pg_current_snapshot())"


def forget_events_of_another_server(**_: Any) -> None:
    """Remove events of the future; `migrate` ends with it. Windows then begin with the events that are left."""
    events, pruning = Event._meta.db_table, Pruning._meta.db_table
    with connection.cursor() as cursor:
        if {events, pruning} <= set(connection.introspection.table_names(cursor)):
            cursor.execute(f"DELETE FROM {events} WHERE xid >= {_FUTURE}")  # noqa: S608 - names of ours
            cursor.execute(
                f"UPDATE {pruning} SET horizon_xid = 0, horizon_id = 0"  # noqa: S608
                f" WHERE horizon_xid::text::xid8 >= {_FUTURE}"
            )
