"""A database with a quarter of a million rows in the tables that grow: nearly everything has ended, a little is open.

The rows are those of `data/many_rows.sql`. Constraints and indexes are put aside while they are written.
"""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from pathlib import Path

import psycopg
from django.db import connection
from django.db.models import Model
from django.db.models.expressions import DatabaseDefault

from tests.queries import queries

SESSIONS, ROWS = 200_000, 250_000
_INSERTS = {
    match[1]: match[0]
    for match in re.finditer(
        r"^INSERT INTO (\w+).*?;$",
        (Path(__file__).parent / "data/many_rows.sql").read_text(),
        re.DOTALL | re.MULTILINE,
    )
}
_OF_PEOPLE = {"auth_user", "sessions_app_agent", "sessions_app_telegrambot", "sessions_app_telegramchat"}
GROWING = frozenset(_INSERTS) - _OF_PEOPLE
_CATALOG = queries("many_rows_catalog")
# a fresh server has not had as many transactions as the events are of
_BURN = "DO $$ BEGIN FOR n IN 1..10000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
_SETTINGS = {"synchronous_commit": "off", "maintenance_work_mem": "256MB", "work_mem": "256MB"}


def insert_many(like: Model, count: int, **columns: str) -> None:
    """Insert rows like an unsaved one, written by PostgreSQL. `columns`: expressions of n, from 0 on, by column."""
    fields = [
        each
        for each in like._meta.local_concrete_fields
        if not each.generated
        and each.attname not in columns
        and not isinstance(each.value_from_object(like), DatabaseDefault)
        and not (each.primary_key and each.value_from_object(like) is None)
    ]
    names = ", ".join([f'"{each.column}"' for each in fields] + [f'"{name}"' for name in columns])
    values = ", ".join(["%s"] * len(fields) + [sql.replace("%", "%%") for sql in columns.values()])
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {like._meta.db_table} ({names}) SELECT {values} FROM generate_series(0, {count - 1}) AS n",
            [each.get_db_prep_save(each.value_from_object(like), connection) for each in fields],
        )


def session(n: int) -> uuid.UUID:
    """The id of a session by its number: 1 and 2 are the primary ones of users 1 and 2."""
    return uuid.UUID(md5(f"session{n}".encode(), usedforsecurity=False).hexdigest())


def fill(url: str) -> None:
    """Write the rows into an empty database and gather statistics."""
    with psycopg.connect(url, autocommit=True) as server:
        keys = server.execute(_CATALOG["keys"], {"tables": list(_INSERTS)}).fetchall()  # foreign ones first
        indexes = server.execute(_CATALOG["indexes"], {"tables": list(_INSERTS)}).fetchall()
        for table, name, _, _ in keys:
            server.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        for _, name, _ in indexes:
            server.execute(f"DROP INDEX {name}")
        after = [(table, definition) for table, _, definition in indexes] + [
            (table, f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
            for table, name, definition, kind in keys
            if kind != "f"
        ]

        def write(table: str) -> None:
            _write(url, table, [statement for of, statement in after if of == table])

        server.execute(_BURN)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, _INSERTS))
        for table, name, definition, kind in keys:
            if kind == "f":  # not compared: whom a row belongs to follows from its number
                server.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID")


def _write(url: str, table: str, after: list[str]) -> None:
    with psycopg.connect(url, autocommit=True) as server:
        for name, value in _SETTINGS.items():
            server.execute(f"SET {name} = '{value}'")
        server.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")  # the rows name their owners
        server.execute(_INSERTS[table])
        server.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        for statement in after:
            server.execute(statement)
        server.execute(_CATALOG["sequences"], {"table": table})  # they go on behind the rows
        server.execute(f"VACUUM ANALYZE {table}")  # a fresh visibility map, too
