"""Retry work after deadlocks and while the database is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
import structlog
from django.db import InterfaceError, OperationalError, connection

T = TypeVar("T")

WAITS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)  # seconds before each further try
DEADLOCK_TRIES = 4

log = structlog.get_logger(__name__)


def retry_while_down(action: Callable[[], T]) -> T:
    """Retry for about 24 s while the database is unavailable. The action must be harmless when it is repeated."""
    for wait in WAITS:
        try:
            return action()
        except (OperationalError, InterfaceError) as error:
            log.warning("database_away", error=type(error).__name__)
            connection.close()
            time.sleep(wait)
    return action()


def retry_deadlocks(action: Callable[[], T]) -> T:
    """Run a transaction, and retry it when PostgreSQL aborts it to break a deadlock. Inside another one: no retry."""
    tries = 1 if connection.in_atomic_block else DEADLOCK_TRIES
    for _ in range(tries - 1):
        try:
            return action()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise
            log.warning("deadlock_broken")
    return action()
