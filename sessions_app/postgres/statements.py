"""SQL that SQLAlchemy Core composes and Django's connection executes, in Django's transaction.

The ORM has no data-modifying CTEs, and in a plain string a misspelt column is only found when it runs.
"""

from __future__ import annotations

import json
import threading
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import sqlalchemy as sa
from django.db import DEFAULT_DB_ALIAS, connections, models
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

_METADATA = sa.MetaData()
_guard = threading.Lock()
_NAMED: Any = psycopg_dialect.PGDialect_psycopg(paramstyle="pyformat")  # type: ignore[no-untyped-call]
_NUMBERED: Any = psycopg_dialect.PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_TYPES: dict[str, Any] = {
    "UUIDField": sa.Uuid(),
    "JSONField": postgresql.JSONB(),
    "DateTimeField": sa.DateTime(timezone=True),
    "BooleanField": sa.Boolean(),
    "PositiveSmallIntegerField": sa.SmallInteger(),
    "SmallIntegerField": sa.SmallInteger(),
    "PositiveIntegerField": sa.Integer(),
    "IntegerField": sa.Integer(),
}
Which = Callable[[Any], Any]  # a condition on the rows of a table or an alias of it
_BIG = {"BigAutoField", "BigIntegerField", "PositiveBigIntegerField", "AutoField"}


def _type_of(field: models.Field[Any, Any]) -> Any:
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    kind = field.get_internal_type()
    return sa.BigInteger() if kind in _BIG else _TYPES.get(kind, sa.Text())


def table(model: type[models.Model]) -> sa.Table:
    """Return the SQLAlchemy table of a Django model, with the column names of the database."""
    with _guard:  # several threads may load statements at the same time
        return _table(model)


@cache
def _table(model: type[models.Model]) -> sa.Table:
    columns = [sa.Column(field.column, _type_of(field)) for field in model._meta.concrete_fields]
    return sa.Table(model._meta.db_table, _METADATA, *columns)


def heads(
    rows: sa.Table, columns: Sequence[str], group: Sequence[str], order: Sequence[str], which: Which
) -> Any:
    """Return a CTE with the first row by `order` of each `group`, among the rows that match `which`.

    It jumps from group to group along the index on group and order (a loose index scan). PostgreSQL does not plan that
    by itself.
    """

    def first(among: Any, *beyond: Any) -> Any:
        by = [among.c[name] for name in (*group, *order)]
        return (
            sa.select(*(among.c[name] for name in columns))
            .where(which(among), *beyond)
            .order_by(*by)
            .limit(1)
        )

    found = sa.select(first(rows.alias()).subquery()).cte("heads", recursive=True)
    following = rows.alias()
    later = sa.tuple_(*(following.c[n] for n in group)) > sa.tuple_(*(found.c[n] for n in group))
    jump = first(following, later).correlate(found).lateral("jump")
    return found.union_all(sa.select(*(jump.c[n] for n in columns)).select_from(found.join(jump, sa.true())))


class Statement:
    """A statement that is compiled at first use, and executed with named parameters.

    `clause`: the statement, or a function that composes it at first use. `prepared`: PostgreSQL parses and plans it
    once for each connection. Not for statements whose best plan depends on their parameters. One without parameters has
    its constants in its text.
    """

    def __init__(self, clause: Any, *, prepared: bool = False) -> None:
        self._clause, self._prepared = clause, prepared
        self._row: Any = None

    @cached_property
    def text(self) -> str:
        """The SQL text, with named placeholders for parameters."""
        return str(self._compile(_NAMED))

    @cached_property
    def _compiled(self) -> Any:
        return self._compile(_NUMBERED if self._prepared else _NAMED)

    def _compile(self, dialect: Any) -> Any:
        clause = self._clause() if callable(self._clause) else self._clause
        compiled = clause.compile(dialect=dialect)
        if self._prepared and None not in compiled.params.values():
            # PostgreSQL may plan a statement with parameters each time; without any it keeps the plan
            return clause.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        return compiled

    @cached_property
    def _constants(self) -> dict[str, Any]:
        return {key: value for key, value in self._compiled.params.items() if value is not None}

    def _execute(self, cursor: Any, params: dict[str, Any]) -> None:
        given: Any = self._constants | params
        if self._prepared:
            if params and not self._compiled.positiontup:
                raise TypeError("this statement has no parameters")
            given = [given[name] for name in self._compiled.positiontup]
        cursor.execute(str(self._compiled), given)

    def all(self, **params: Any) -> list[Any]:
        """Return all rows as named tuples. JSON columns are texts, as Django's connection returns them."""
        with self._cursor() as cursor:
            self._execute(cursor, params)
            if self._row is None:
                self._row = namedtuple("Row", [column.name for column in cursor.description])  # type: ignore[misc]  # noqa: PYI024 - its fields are known at run time
            return [self._row._make(row) for row in cursor.fetchall()]

    def first(self, **params: Any) -> Any | None:
        """Return the first row, or None."""
        rows = self.all(**params)
        return rows[0] if rows else None

    def run(self, **params: Any) -> int:
        """Execute the statement; returns the number of affected rows."""
        with self._cursor() as cursor:
            self._execute(cursor, params)
            return int(cursor.rowcount)

    def _cursor(self) -> Any:
        database: Any = connections[DEFAULT_DB_ALIAS]
        return database.prepared_cursor() if self._prepared else database.cursor()


def recordset(name: str, types: Mapping[str, Any]) -> Any:
    """Select rows with columns of these types from parameters, which `recordset_of` makes.

    A single JSON text is cheaper to send than arrays. The LIMIT tells PostgreSQL how many rows there are; without it
    it would expect 100, and read whole tables of thousands of rows to find one.
    """
    columns: list[Any] = [sa.column(column, type_) for column, type_ in types.items()]
    rows = sa.func.jsonb_to_recordset(sa.cast(sa.bindparam(name, type_=sa.Text()), postgresql.JSONB))
    given = rows.table_valued(*columns, name=name).render_derived(with_types=True)
    return sa.select(*given.c).limit(sa.bindparam(f"{name}_count", type_=sa.Integer()))


def recordset_of(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of a `recordset`. A missing column is NULL; a UUID is given as text."""
    return {name: json.dumps(rows, default=str), f"{name}_count": len(rows)}


def seconds_parameter(name: str) -> Any:
    """Return an interval from a bind parameter of this name, which is in seconds."""
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.bindparam(name, type_=sa.Float()))
