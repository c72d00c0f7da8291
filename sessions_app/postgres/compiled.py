"""Querysets of the ORM that are composed once and executed with parameters.

Composing a queryset costs several times as much as executing it, and the SQL is the same each time. The rules stay in
the querysets: those of a list and of a single row share their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import BooleanField, Expression, Field, Func, Model, QuerySet
from django.db.models.query import get_related_populators
from psycopg.sql import Literal

from sessions_app.postgres.in_time import InTime
from sessions_app.postgres.merged_rows import Merged

M = TypeVar("M", bound=Model)
_populators: Any = get_related_populators  # Django's type stubs are those of a later version


class Parameter(Expression):
    """A value that is given with each execution of a `CompiledQuery`."""

    def __init__(self, name: str, output_field: Field[Any, Any] | None = None) -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> Any:  # noqa: ARG002 - Django's signature
        """A placeholder, with this parameter in the place of its value."""
        return "%s", [self]


def is_any_of(column: str, name: str) -> Func:
    """Condition: the column equals one of the values of the parameter, a list."""
    return Func(
        column,
        Parameter(name),
        template="%(expressions)s)",
        arg_joiner=" = ANY(",
        output_field=BooleanField(),
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What Django's compiler made of a queryset."""

    sql: str
    params: list[str]  # the names of its parameters, in their order
    model: type[Model]
    fields: list[str]
    part: slice  # the columns of the fields
    converters: list[tuple[int, Any, Any]]
    related: list[Any]
    annotations: list[tuple[str, int]]


class CompiledQuery(Generic[M]):
    """A queryset that is compiled at first use. `make` returns it; it has a `Parameter` for each value that varies.

    `prepared`: PostgreSQL parses and plans it once for each connection, as with `Statement`. For rows found by a unique
    key: the plan of a query that reads more may be one for tables that were empty then.
    """

    def __init__(self, make: Callable[[], QuerySet[M]], *, prepared: bool = False) -> None:
        self._make, self._prepared = make, prepared
        self._plan: _Plan | None = None

    def all(self, **params: Any) -> list[M]:
        """Return the rows as instances of the model, with their annotations and related objects."""
        plan = self._plan or self._compile()
        connection: Any = connections[DEFAULT_DB_ALIAS]
        with connection.prepared_cursor() if self._prepared else connection.cursor() as cursor:
            cursor.execute(plan.sql, [params[name] for name in plan.params])
            rows = cursor.fetchall()
        return [self._instance(plan, list(row), connection) for row in rows]

    def first(self, **params: Any) -> M | None:
        """Return the first row, or None."""
        rows = self.all(**params)
        return rows[0] if rows else None

    def _compile(self) -> _Plan:
        """Do what Django's `ModelIterable` does before it reads rows. Two threads may both do it."""
        queryset = self._make()
        compiler = queryset.query.get_compiler(using=DEFAULT_DB_ALIAS)
        sql, params = compiler.as_sql()
        info: Any = compiler.klass_info
        columns = info["select_fields"]
        part = slice(columns[0], columns[-1] + 1)
        expressions = [each[0] for each in compiler.select]
        self._plan = _Plan(
            sql=with_constants(sql, params, numbered=self._prepared),
            params=[each.name for each in params if isinstance(each, Parameter)],
            model=info["model"],
            fields=[each.target.attname for each in expressions[part]],
            part=part,
            converters=[
                (column, converter, expression)
                for column, (found, expression) in compiler.get_converters(expressions).items()
                for converter in found
            ],
            related=_related(queryset, info, compiler.select),
            annotations=list((compiler.annotation_col_map or {}).items()),
        )
        return self._plan

    def _instance(self, plan: _Plan, row: list[Any], connection: Any) -> M:
        for column, converter, expression in plan.converters:
            row[column] = converter(row[column], expression, connection)
        made: Any = plan.model.from_db(DEFAULT_DB_ALIAS, plan.fields, row[plan.part])
        for populator in plan.related:
            populator.populate(row, made)
        for name, column in plan.annotations:
            setattr(made, name, row[column])
        return made  # type: ignore[no-any-return]


def _related(queryset: QuerySet[Any], info: Any, select: Any) -> list[Any]:
    # Django 6.1 and newer also want to know how columns that were left out are fetched
    mode = getattr(queryset, "_fetch_mode", None)
    populators: list[Any] = _populators(info, select, DEFAULT_DB_ALIAS, *([] if mode is None else [mode]))
    return populators


def with_constants(sql: str, params: Sequence[Any], *, numbered: bool) -> str:
    """Return the SQL with all values in it except the parameters; binding each of them again takes time.

    `numbered`: for a prepared cursor, whose parameters are `$1`, `$2` …
    """
    numbers = count(1)
    percent = "%" if numbered else "%%"

    def shown(each: Any) -> str:
        if isinstance(each, Parameter):
            return f"${next(numbers)}" if numbered else "%s"
        return Literal(each).as_string().replace("%", percent)

    return sql.replace("%%", percent * 2) % tuple(shown(each) for each in params)


@dataclass(frozen=True, kw_only=True)
class Keyed(Generic[M]):
    """A list that is read by pages: `keys` finds the rows of a page, `load` reads them by their `ids`.

    So PostgreSQL knows how few rows it computes the annotations for. With all rows of `keys` in one statement it plans
    for all of them, and may read whole tables, although the page needs a few.

    `beside`: an expression for the bytes that `load` adds to a row of `keys`, if they may be many.
    """

    keys: Merged[M] | InTime[M]
    load: Callable[..., list[M]]
    beside: Any = None

    def rows(self, ids: Sequence[Any]) -> list[M]:
        """Return these rows in this order. Rows that were deleted meanwhile are missing."""
        found = {row.pk: row for row in self.load(ids=list(ids))} if ids else {}
        return [found[each] for each in ids if each in found]
