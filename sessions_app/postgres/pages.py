"""Lists that are read page by page. What a page reads and returns is bounded, whatever is stored (rule 10.0)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import (
    BooleanField,
    F,
    Func,
    IntegerField,
    JSONField,
    Model,
    Q,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.functions import Left
from django.db.models.lookups import IContains

M = TypeVar("M", bound=Model)

LARGEST_PAGE = 1_000_000  # bytes of texts and JSON in the rows of a page; a page has at least one row
BYTES_OF_VALUE = 20  # added for each value in JSON
LONGEST_TERM = 100  # characters
MOST_SEARCHED = 5_000  # newest rows that are compared
LONGEST_COMPARED = 5_000  # characters at the beginning of each column


@dataclass(frozen=True, kw_only=True)
class PagedQuery(Generic[M]):
    """A list in the order of fields that are unique together, with the part of a queryset that pagination uses.

    A page is found first, as keys with the sizes of its rows, and loaded then. So PostgreSQL knows how few rows it
    computes the annotations for, and nothing larger than a page is fetched. The place of a row is the text of its
    values in this order.

    Each of `parts` is read by its own index up to the end of the page, and the results are merged: for
    `column IN (a, b)` PostgreSQL would read and sort all rows of both values.

    `load` returns rows by their ids; without it they are those of the parts. `sizes` returns the bytes that it adds to
    rows, by the parameter `ids`.
    """

    parts: Sequence[QuerySet[M]]
    order: tuple[str, ...]
    load: Callable[[list[Any]], Iterable[M]] | None = None
    sizes: Callable[..., Iterable[tuple[Any, int | None]]] | None = None
    backwards: bool = False

    def order_by(self, name: str) -> PagedQuery[M]:
        """Order by `place` or `-place`."""
        return replace(self, backwards=name.startswith("-"))

    def filter(self, **bound: str) -> PagedQuery[M]:
        """Filter by `place__gt` or `place__lt`. ValueError for a malformed place."""
        [(name, place)] = bound.items()
        operator = " < " if name == "place__lt" else " > "
        return replace(self, parts=[rows.filter(self._beyond(rows, operator, place)) for rows in self.parts])

    def exists(self) -> bool:
        """Whether the list has a row."""
        return any(rows.exists() for rows in self.parts)

    def __getitem__(self, part: slice) -> list[dict[str, Any]]:
        """Return the keys of a slice, which must have an end: `pk`, `place` and `size` of each row."""
        names = [f"-{name}" if self.backwards else name for name in self.order]
        keys: list[dict[str, Any]] = []
        for rows in self.parts:
            plain = rows.select_related(None).prefetch_related(None).order_by(*names)
            keys += plain.values("pk", *self.order, size=size_of_row(rows))[: part.stop]
        if len(self.parts) > 1:
            keys.sort(key=itemgetter(*self.order), reverse=self.backwards)
        keys = keys[part]
        extra = dict(self.sizes(ids=[key["pk"] for key in keys])) if self.sizes and keys else {}
        for key in keys:
            key["place"] = ".".join(str(key[name]) for name in self.order)
            key["size"] += extra.get(key["pk"]) or 0
        return keys

    def newest(self, most: int) -> list[Any]:
        """Return the last rows of the list, the newest first."""
        return self.rows(self.order_by("-place")[:most])

    def rows(self, keys: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Return the rows of these keys, in their order, each with its `place`. Rows deleted meanwhile are missing."""
        places = {key["pk"]: key["place"] for key in keys}
        found = {row.pk: row for row in (self.load or self._load)([*places])} if places else {}
        for row in found.values():
            row.place = places[row.pk]  # type: ignore[attr-defined]
        return [found[key] for key in places if key in found]

    def _load(self, ids: list[Any]) -> list[M]:
        return [row for rows in self.parts for row in rows.order_by().filter(pk__in=ids)]

    def _beyond(self, rows: QuerySet[M], operator: str, place: str) -> Func:
        """Return the condition that a row comes before or after the place."""
        texts = place.rsplit(".", len(self.order) - 1)
        texts += ["0"] * (len(self.order) - len(texts))
        values = [_value_of(rows, name, text) for name, text in zip(self.order, texts, strict=True)]
        # the row is compared as a whole: from conditions on its columns PostgreSQL expects too few rows, and sorts
        return Func(
            Func(*(F(name) for name in self.order), function="ROW", output_field=BooleanField()),
            Func(*values, function="ROW", output_field=BooleanField()),
            template="%(expressions)s",
            arg_joiner=operator,
            output_field=BooleanField(),
        )


def _value_of(rows: QuerySet[Any], name: str, text: str) -> Func:
    """Return a value of this field as a subquery.

    PostgreSQL plans without knowing the value: for a time after which a user has no rows it would choose to sort.
    """
    field: Any = F(name).resolve_expression(rows.query).output_field
    try:
        value = field.to_python(text)
        field.run_validators(value)
    except ValidationError:
        raise ValueError(f"{text!r} is not a value of {name}") from None
    return Func(Value(value, field), template="(SELECT %(expressions)s)", output_field=field)


def how_many_fit(keys: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many of the rows, each with its `size`, fit in LARGEST_PAGE, at least one. None: all of them."""
    total = 0
    for number, key in enumerate(keys):
        total += key["size"]
        if total > LARGEST_PAGE:
            return max(number, 1)
    return None


def size_of_row(rows: QuerySet[Any]) -> Func:
    """Return an expression for the bytes in the fetched text and JSON columns of a row.

    It counts bytes, not characters, for which a long text would have to be unpacked. It is SQL because Django would
    take half a millisecond for so many expressions.
    """
    names, is_left_out = rows.query.deferred_loading
    fields = [each for each in rows.model._meta.concrete_fields if (each.attname in names) != is_left_out]
    sizes = [_size_of(rows.model._meta.db_table, each) for each in fields]
    return Func(template=" + ".join(["0", *filter(None, sizes)]), output_field=IntegerField())


def _size_of(table: str, field: Any) -> str:
    text = f'"{table}"."{field.column}"::text'
    if isinstance(field, JSONField):
        commas = f"length({text}) - length(replace({text}, ',', ''))"
        return f"coalesce(octet_length({text}) + {BYTES_OF_VALUE} * ({commas}), 0)"
    return f"coalesce(octet_length({text}), 0)" if isinstance(field, TextField) else ""


def search_newest(rows: QuerySet[M], found: Q, *, time: str) -> QuerySet[M]:
    """Return the rows that fulfil `found`, among the newest by `time`; all rows for an empty condition.

    The table needs an index on the filter's columns, followed by `time`: only that finds the oldest row quickly.
    """
    if not found:
        return rows
    times = rows.order_by(f"-{time}").values_list(time, flat=True)
    oldest = list(times[MOST_SEARCHED - 1 : MOST_SEARCHED])
    newest = rows.filter(**{f"{time}__gte": oldest[0]}) if oldest else rows
    return newest.filter(found)


def found_in(term: str, *columns: str) -> Q:
    """Condition: the beginning of one of the columns has the term, in upper or lower case. Empty without a term."""
    found = Q()
    for column in columns if term else ():
        found |= Q(IContains(Left(column, LONGEST_COMPARED), term))
    return found
