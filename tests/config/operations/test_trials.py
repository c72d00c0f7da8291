"""What is in the way of the database and the broker is named, also where connecting fails (rule 10.2)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import connection

from config.operations.trials import broker_fault, database_fault

pytestmark = pytest.mark.rule("10.2")


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_fails_names_its_cause() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE narrow LOGIN PASSWORD 'narrow' CONNECTION LIMIT 0")
    known = connection.get_connection_params()
    causes: dict[str, dict[str, Any]] = {
        "all connections of PostgreSQL are taken": {"user": "narrow", "password": "narrow"},
        "PostgreSQL refuses the account": {"password": "wrong"},
        "PostgreSQL has no such database": {"dbname": "nowhere"},
        "the database does not answer": {"port": 1},
    }
    try:
        for cause, wrong in causes.items():
            with pytest.raises(psycopg.OperationalError) as failed:
                psycopg.connect(**{**known, **wrong}).close()
            assert database_fault(failed.value)[0].startswith(cause), failed.value
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP ROLE narrow")
    full = psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already")
    assert database_fault(full)[0] == "all connections of PostgreSQL are taken"


def test_a_broker_that_takes_no_connection_names_its_cause() -> None:
    full = ConnectionError("max number of clients reached")
    assert broker_fault(full)[0] == "all connections of the broker are taken"
    alone = ConnectionError("MASTERDOWN Link with MASTER is down")
    assert broker_fault(alone)[0] == "the broker is a replica whose primary is down"
