"""Logs failures after which work goes on: expected ones in a line, bugs with their trace, so that they are reported."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import InterfaceError, OperationalError

from sessions_app.exceptions import PooledConnection

# the database is away, or its address leads elsewhere
OUTAGES = (
    *(OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError),
    *(OSError, PooledConnection),
)


def log_failure(
    log: Any, event: str, error: Exception, expected: tuple[type[Exception], ...], **more: Any
) -> None:
    """Log a warning with the class of an expected error, else an error with the trace."""
    if isinstance(error, expected):
        log.warning(event, error=type(error).__name__, **more)
    else:
        log.error(event, exc_info=error, **more)
