"""Connections outside the pool, for locks and LISTEN. They live long, and their owners watch them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from sessions_app.exceptions import PooledConnection
from sessions_app.postgres.connection import CLIENT, DirectConnection, server_options


def connect_directly(
    url: str, application_name: str = "rondo", server: Mapping[str, str] | None = None
) -> DirectConnection:
    """Open an autocommit connection. Parameters of the URL override the defaults.

    PooledConnection if it goes through a transaction pooler, where neither locks nor LISTEN work.
    """
    given = conninfo_to_dict(url)
    options = server_options(str(given.get("options") or ""), **(server or {}))
    parameters: dict[str, Any] = CLIENT | given
    parameters |= {"options": options, "application_name": application_name}
    connection = DirectConnection.connect(autocommit=True, **parameters)
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        connection.close()
        raise PooledConnection
    return connection
