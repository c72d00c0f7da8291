"""Patience with a database that is away for a moment, and with deadlocks: the work is done again, not lost."""

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


def patiently(action: Callable[[], T]) -> T:
    """Do it, and again for some 24 s while the database is away. For what is harmless when it is done twice."""
    for wait in WAITS:
        try:
            return action()
        except (OperationalError, InterfaceError) as error:
            log.warning("database_away", error=type(error).__name__)
            connection.close()
            time.sleep(wait)
    return action()


def through_deadlocks(action: Callable[[], T]) -> T:
    """Do a whole transaction, and again when PostgreSQL broke a deadlock at its cost. Within another: once."""
    tries = 1 if connection.in_atomic_block else DEADLOCK_TRIES
    for _ in range(tries - 1):
        try:
            return action()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise
            log.warning("deadlock_broken")
    return action()
