"""Django's PostgreSQL backend with the pool of this package; the setting `ENGINE` names this package."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base

from sessions_app.postgres.connection import Pool


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper with a pool whose connections have a time limit for each call."""

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
