"""Empty the tables after a test that committed something: those that hold rows, in one transaction.

Django's own way truncates every table and then writes all content types and permissions anew, which costs
more than most tests. Here those two stay as the migrations made them.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from psycopg import sql
from psycopg.errors import DeadlockDetected

KEPT = {"django_migrations", "django_content_type", "auth_permission"}
MANY = 1_000  # rows: more than these are truncated, which costs the same for any number
TRIES = 4


def empty_tables(alias: str = "default") -> None:
    """Delete what tests have committed.

    A worker that a module keeps may beat or sweep meanwhile. Each has then locked what the other wants,
    PostgreSQL ends one of the two, and that one asks again.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            with transaction.atomic(alias), connections[alias].cursor() as cursor:
                _empty(cursor, connections[alias].introspection.table_names())
            return
        except Exception as problem:
            if not tries_left or not isinstance(problem.__cause__, DeadlockDetected):
                raise


def _empty(cursor: Any, names: list[str]) -> None:
    """Foreign keys are deferred, so the order does not matter."""
    count = sql.SQL("SELECT {}, (SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {}) AS first_rows)")
    tables = [name for name in names if name not in KEPT]
    cursor.execute(
        sql.SQL(" UNION ALL ").join(
            count.format(sql.Literal(name), sql.Identifier(name), sql.Literal(MANY)) for name in tables
        )
    )
    rows = dict(cursor.fetchall())
    for name in (
        name for name in tables if rows[name] == MANY
    ):  # first: not after a delete that refers to it
        cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.Identifier(name)))
    for name in (name for name in tables if 0 < rows[name] < MANY):
        cursor.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
