"""Several querysets merged into one list, read page by page."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)


class Merged(Generic[M]):
    """The parts of a queryset's interface that pagination uses.

    Each queryset is read by its own index, in order, up to the end of the page. For `column IN (a, b)` PostgreSQL
    would read all rows of both values and sort them.
    """

    def __init__(self, *parts: QuerySet[M]) -> None:
        self._parts = parts
        self._order: tuple[str, ...] = ()

    def filter(self, *args: Any, **kwargs: Any) -> Merged[M]:
        """Filter, as for a queryset."""
        return self._with(*(part.filter(*args, **kwargs) for part in self._parts), order=self._order)

    def order_by(self, *names: str) -> Merged[M]:
        """Order by fields of the row itself, as for a queryset."""
        return self._with(*(part.order_by(*names) for part in self._parts), order=names)

    def sizes(self, *names: str, size: Any) -> Merged[Any]:
        """Return the rows as dictionaries of these fields and of the expression `size`."""
        plain = (part.select_related(None).prefetch_related(None) for part in self._parts)
        parts: list[QuerySet[Any]] = [part.values(*names, size=size) for part in plain]
        return self._with(*parts, order=self._order)

    @property
    def first(self) -> QuerySet[M]:
        """The first of the querysets; all have one model and fetch the same fields."""
        return self._parts[0]

    def __getitem__(self, part: slice) -> list[M]:
        """Return a slice, which must have an end."""
        rows = [row for each in self._parts for row in each[: part.stop]]
        for name in reversed(self._order):
            field = name.removeprefix("-")
            rows.sort(key=partial(_value, field), reverse=name.startswith("-"))
        return rows[part]

    def _with(self, *parts: QuerySet[Any], order: tuple[str, ...]) -> Merged[Any]:
        other: Merged[Any] = Merged(*parts)
        other._order = order
        return other


def _value(field: str, row: Any) -> Any:
    return row[field] if isinstance(row, dict) else getattr(row, field)
