"""The size of rows, measured before they are read: a row may have megabytes, and a page has a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any

from django.db.models import (
    Expression,
    F,
    Func,
    IntegerField,
    JSONField,
    Model,
    QuerySet,
    Subquery,
    TextField,
    Value,
)
from django.db.models.functions import Cast, Coalesce

from sessions_app.postgres.compiled import with_constants

LARGEST_PAGE = 1_000_000  # bytes of texts and JSON in the rows of a page; a page has at least one row
VALUE = 20  # bytes added for each value in JSON


def how_many_fit(rows: Iterable[dict[str, Any]]) -> int | None:
    """Return how many of the rows, each with its `size`, fit in LARGEST_PAGE, at least one. None: all of them."""
    total = 0
    for number, row in enumerate(rows):
        total += row["size"]
        if total > LARGEST_PAGE:
            return max(number, 1)
    return None


def size_of_rows(queryset: QuerySet[Any]) -> Any | None:
    """Return an expression for the bytes in the fetched text and JSON columns of a row; None without such columns."""
    names, is_left_out = queryset.query.deferred_loading
    fields = [
        field for field in queryset.model._meta.concrete_fields if (field.attname in names) != is_left_out
    ]
    texts, jsons = (
        tuple(str(field.column) for field in fields if isinstance(field, kind))
        for kind in (TextField, JSONField)
    )
    return _RowSize(texts, jsons) if texts or jsons else None


class SizeBeside(Expression):
    """The bytes in other rows that are shown with a row of the model.

    `make` returns the expression, whose outer references are to columns of the row. It is composed once.
    """

    def __init__(self, model: type[Model], make: Callable[[], Any]) -> None:
        super().__init__(output_field=IntegerField())
        self._model, self._make = model, make
        self._composed: list[str] = []  # copies of the expression share it

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The expression for the query's own table."""
        quote_table = getattr(compiler, "quote_name", compiler.quote_name_unless_alias)
        table = connection.ops.quote_name(self._model._meta.db_table)
        if not self._composed:
            rows: Any = QuerySet(self._model).order_by().values(size=self._make())
            sql, params = rows.query.get_compiler(connection=connection).as_sql()
            whole = with_constants(sql, params, numbered=False)
            self._composed.append(whole.removeprefix("SELECT ").removesuffix(f' AS "size" FROM {table}'))
        own = quote_table(compiler.query.get_initial_alias())
        return self._composed[0].replace(f"{table}.", f"{own}."), []


def bytes_of(rows: QuerySet[Any], *columns: str) -> Any:
    """Return an expression for the bytes in these columns of a subquery's `rows`: of all, or of the one of a slice."""
    number = IntegerField()
    size = octets(*(F(each) for each in columns))
    if not rows.query.is_sliced:
        rows = rows.order_by()
        size = Func(size, function="sum", output_field=number)  # not Django's Sum: it would group the rows
    return Coalesce(Subquery(rows.values(size=size)), Value(0), output_field=number)


def octets(*values: Any) -> Any:
    """Return an expression for the bytes of these expressions, written as text. Null has none."""
    texts = (
        Func(Cast(each, TextField()), function="octet_length", output_field=IntegerField()) for each in values
    )
    return reduce(add, (Coalesce(each, Value(0)) for each in texts))


class _RowSize(Expression):
    """The bytes in the text and JSON columns of a row.

    It makes its SQL itself: an expression of Django's functions takes longer to compose than the page takes to read.
    """

    def __init__(self, texts: tuple[str, ...], jsons: tuple[str, ...]) -> None:
        super().__init__(output_field=IntegerField())
        self.texts, self.jsons = texts, jsons

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """The sum over the columns of the query's own table."""
        # Django 6.1 has another name for it
        quote_table = getattr(compiler, "quote_name", compiler.quote_name_unless_alias)
        table = quote_table(compiler.query.get_initial_alias())
        quote = connection.ops.quote_name
        # not the number of characters: a long text would have to be unpacked
        texts = [f"coalesce(octet_length({table}.{quote(name)}), 0)" for name in self.texts]
        sizes = [*texts, *(_json_size(f"{table}.{quote(name)}::text") for name in self.jsons)]
        return f"({' + '.join(sizes)})", []


def _json_size(text: str) -> str:
    commas = f"length({text}) - length(replace({text}, ',', ''))"
    return f"coalesce(octet_length({text}) + {VALUE} * ({commas}), 0)"
