"""Empty the tables after a test that committed something: those that hold rows, in one transaction.

Django's own way truncates every table and then writes all content types and permissions anew, which costs
more than most tests. Here those two stay as the migrations made them.
"""

from functools import cache
from typing import Any

from django.db import connections, transaction
from psycopg import sql
from psycopg.errors import DeadlockDetected, ForeignKeyViolation

KEPT = {"django_migrations", "django_content_type", "auth_permission"}
MANY = 1_000  # rows: more than these are truncated, which costs the same for any number
EVENTS = "sessions_app_event"  # they have no foreign keys
TRIES = 4
MEANWHILE = DeadlockDetected, ForeignKeyViolation  # what other processes did while the tables were emptied


def empty_tables(alias: str = "default") -> None:
    """Delete what tests have committed.

    A worker that a module keeps may beat or sweep meanwhile. Each has then locked what the other wants,
    PostgreSQL ends one of the two, and that one asks again. A page that is left may send its last mark of what was read
    after the marks were deleted, and before the sessions are.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            with transaction.atomic(alias), connections[alias].cursor() as cursor:
                _empty(cursor, alias)
            return
        except Exception as problem:
            if not tries_left or not isinstance(problem.__cause__, MEANWHILE):
                raise


def _empty(cursor: Any, alias: str) -> None:
    """Foreign keys are deferred, so the order does not matter, but for what is truncated: that comes first."""
    cursor.execute(_rows_of_each(alias))
    rows = dict(cursor.fetchall())
    for name, count in rows.items():
        if count == MANY:
            cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.Identifier(name)))
    # a worker's turn may have stored another event meanwhile, until the turn itself is gone
    for name in sorted(rows, key=lambda name: name == EVENTS):
        if 0 < rows[name] < MANY or name == EVENTS:
            cursor.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))


@cache
def _rows_of_each(alias: str) -> sql.Composed:
    """The statement that counts the rows of each table, up to MANY."""
    count = sql.SQL("SELECT {}, (SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {}) AS first_rows)")
    names = sorted(set(connections[alias].introspection.table_names()) - KEPT)
    return sql.SQL(" UNION ALL ").join(
        count.format(sql.Literal(name), sql.Identifier(name), sql.Literal(MANY)) for name in names
    )
