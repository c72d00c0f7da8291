"""DATABASE_URL in Django's words."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

IDLE_IN_TRANSACTION_SECONDS = 30  # no transaction of ours is open while the slow world works
POOL_WAIT_SECONDS = 10.0


def database(url: str, pool_size: int) -> dict[str, Any]:
    """Settings of one PostgreSQL database with a pool of at most `pool_size` connections per process."""
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    limit = f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_SECONDS}s"
    options["options"] = f"{options.get('options', '')} {limit}".strip()
    options["pool"] = {"min_size": 1, "max_size": pool_size, "timeout": POOL_WAIT_SECONDS}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,  # Django asks for 0 with a pool
        "CONN_HEALTH_CHECKS": True,  # a pooled connection may be older than the last restart of PostgreSQL
        "OPTIONS": options,
    }
