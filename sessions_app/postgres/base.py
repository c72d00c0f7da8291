"""Django's PostgreSQL backend with the pool of this package; the setting `ENGINE` names this package."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from django.db.backends.postgresql.operations import DatabaseOperations as DjangoOperations

from sessions_app.postgres.connection import Pool


class DatabaseOperations(DjangoOperations):
    """Django's operations, which also name the statements of prepared cursors in the log of queries."""

    def last_executed_query(self, cursor: Any, sql: str, params: Any) -> str:
        """Return the statement as it was sent, or as it was prepared."""
        sent: str | None = super().last_executed_query(cursor, sql, params)
        return sent or sql


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper with a pool whose connections have a time limit for each call, and with prepared cursors."""

    ops_class = DatabaseOperations

    @property
    def pool(self) -> Any:
        """The process's pool, created at first use."""
        options = self.settings_dict["OPTIONS"].get("pool")
        django: Any = self  # Django's type stubs do not include pools
        if options and self.alias != NO_DB_ALIAS and self.alias not in django._connection_pools:  # noqa: SLF001
            made = Pool(
                kwargs=self.get_connection_params() | {"autocommit": True},
                open=False,
                configure=django._configure_connection,  # noqa: SLF001
                **options,
            )
            django._connection_pools.setdefault(self.alias, made)  # noqa: SLF001
        return super().pool

    def prepared_cursor(self) -> Any:
        """Return a cursor whose statements the server prepares, once for each connection, where settings allow it.

        Their parameters are `$1`, `$2` …, because psycopg would parse a long statement with names at each execution.
        """
        django: Any = self
        django.ensure_connection()
        return django._prepare_cursor(psycopg.RawCursor(django.connection))  # noqa: SLF001
