"""The database's settings: what is prepared on the server, with and without a transaction pooler (rule 10.0)."""

from __future__ import annotations

import os
import sys

import pytest

from tests.up import run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.0")]

PREPARES = """
import django
django.setup(set_prefix=False)
import sqlalchemy as sa
from django.db import connection
from sessions_app.postgres.statements import Statement
for _ in range(8):
    Statement(sa.select(sa.literal_column("1").label("one")), prepared=True).all()
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM pg_prepared_statements")
    print(cursor.fetchone()[0])
"""


@pytest.mark.parametrize(("lock_url", "prepared"), [("", 1), ("{url}?application_name=direct", 0)])
def test_nothing_is_prepared_where_locks_have_another_address(lock_url: str, prepared: int) -> None:
    url = os.environ["DATABASE_URL"]
    environ = os.environ | {
        "DATABASE_LOCK_URL": lock_url.format(url=url),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    done = run(sys.executable, "-c", PREPARES, env=environ)
    assert done.stdout.split() == [str(prepared)]
