"""Beat finds due jobs by the partial index, however many jobs there are."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from automations import due
from sessions_app.sql import Statement


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "params"),
    [(due.CLAIM, {"limit": 100}), (due.PEEK, {"limit": 100}), (due.NEXT, {})],
    ids=["claim", "peek", "next"],
)
def test_due_jobs_are_found_by_their_index(statement: Statement, params: dict[str, int]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SET LOCAL enable_seqscan = off"
        )  # the table is empty: what matters is what could be used
        cursor.execute(f"EXPLAIN {statement.text}", statement._constants | params)
        lines = [str(row[0]) for row in cursor.fetchall()]
    assert any("jobclock_due" in line for line in lines), "\n".join(lines)
