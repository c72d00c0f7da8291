"""Connections work whatever formats and isolation the account or the database has as its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from psycopg import sql

from sessions_app.postgres.connection import connect_directly
from tests.conftest import Person
from tests.deletion import caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.0")]

DEFAULTS = {
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
}
VALUES = (datetime(2026, 2, 1, 12, tzinfo=UTC), timedelta(days=1, seconds=2), "茶", b"\x00\xff", r"a\n")


@pytest.fixture
def _odd_defaults() -> Iterator[None]:
    """As `ALTER ROLE … SET` does, for this database alone."""
    name = sql.Identifier(connection.settings_dict["NAME"])
    change = sql.SQL("ALTER DATABASE {} SET {} = {}")
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as own:
        for setting, value in DEFAULTS.items():
            own.execute(change.format(name, sql.Identifier(setting), sql.Literal(value)))
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        yield
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        own.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(name))


@pytest.mark.usefixtures("_odd_defaults")
def test_every_connection_sets_the_formats_that_the_server_relies_on(person: Person) -> None:
    read = "SELECT timestamptz '2026-02-01 12:00+00', interval '1 day 2 s', '茶', '\\x00ff'::bytea, 'a\\n'"
    isolation = "SELECT current_setting('transaction_isolation')"
    with connection.cursor() as cursor:
        cursor.execute(read)
        assert cursor.fetchone() == VALUES
        cursor.execute(isolation)
        assert cursor.fetchone() == ("read committed",)
    with connect_directly(settings.DATABASE_LOCK_URL) as own:
        assert own.execute(read).fetchone() == VALUES
        assert own.execute(isolation).fetchone() == ("read committed",)
    assert caller(person).get("/api/agents/").status_code == 200
