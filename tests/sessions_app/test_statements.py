"""Prepared statements while the tables change."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import OperationalError, connection

from sessions_app.postgres.statements import Statement

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def elsewhere() -> Iterator[psycopg.Connection]:
    """Another connection, and a table that is not ours."""
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as other:
        other.execute("CREATE TABLE changing (name varchar(8))")
        other.execute("INSERT INTO changing VALUES ('before')")
        try:
            yield other
        finally:
            other.execute("DROP TABLE changing")


def test_a_migrated_column_costs_a_connection_and_nothing_more(elsewhere: psycopg.Connection) -> None:
    names = Statement(sa.select(sa.column("name")).select_from(sa.table("changing")), prepared=True)
    assert names.all() == [("before",)]
    elsewhere.execute("ALTER TABLE changing ALTER name TYPE varchar(9)")
    with pytest.raises(OperationalError):
        names.all()
    connection.close()  # as a worker does after this error
    assert names.all() == [("before",)]
