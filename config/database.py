"""Django's DATABASES from DATABASE_URL."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sessions_app.postgres.connection import CLIENT, server_options

IDLE_IN_TRANSACTION_SECONDS = 20  # our transactions never wait for models, tools or clients
POOL_WAIT_SECONDS = 10.0
RECONNECT_SECONDS = 10.0  # the pool retries with growing delays; after this the next request starts over


def database_settings(url: str, pool_size: int, *, direct: bool = True) -> dict[str, Any]:
    """Settings of a PostgreSQL database with at most `pool_size` pooled connections per process.

    Parameters in the URL override the defaults. `direct`: no transaction pooler is in between, so that a statement that
    was prepared on a connection is still there when it is executed.
    """
    parts = urlsplit(url)
    options: dict[str, Any] = CLIENT | dict(parse_qsl(parts.query))
    limit = f"{IDLE_IN_TRANSACTION_SECONDS}s"
    options["options"] = server_options(options.get("options", ""), idle_in_transaction_session_timeout=limit)
    options["prepare_threshold"] = 0 if direct else None  # at the first use, or never
    options["pool"] = {
        "min_size": 1,
        "max_size": pool_size,
        "timeout": POOL_WAIT_SECONDS,
        "reconnect_timeout": RECONNECT_SECONDS,
    }
    return {
        "ENGINE": "sessions_app.postgres",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,  # Django requires 0 with a pool
        "OPTIONS": options,
    }
