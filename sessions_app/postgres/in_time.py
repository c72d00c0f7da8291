"""A list in the order of a time, in which many rows may have the same time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db.models import BooleanField, F, Func, Model, QuerySet, Value

M = TypeVar("M", bound=Model)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class InTime(Generic[M]):
    """The parts of a queryset's interface that pagination uses, ordered by `place`: the time, then the primary key.

    A cursor compares one value, and a batch of automations gives thousands of rows the same time. So the place holds
    both, and an index with both finds the page at once, wherever it begins.
    """

    queryset: QuerySet[M]
    time: str  # the name of the field
    backwards: bool = False

    def order_by(self, name: str) -> InTime[M]:
        """Order by `place` or `-place`."""
        return replace(self, backwards=name.startswith("-"))

    def filter(self, **bound: str) -> InTime[M]:
        """Filter by `place__gt` or `place__lt`. ValueError, OverflowError or ValidationError for a malformed place."""
        [(name, place)] = bound.items()
        microseconds, _, key = place.partition(".")
        at, meta = _EPOCH + timedelta(microseconds=int(microseconds)), self.queryset.model._meta
        field: Any = meta.get_field(self.time)
        # a subquery, so that PostgreSQL plans without knowing the time: it expects hardly any rows of a user whose rows
        # are all old, and would sort them
        unknown = Func(Value(at, field), template="(SELECT %(expressions)s)", output_field=field)
        place_given = _row(unknown, Value(meta.pk.to_python(key), meta.pk))
        # rows are compared as a whole: for the same condition in parts, PostgreSQL expects too few rows and sorts
        beyond = Func(
            _row(F(self.time), F("pk")),
            place_given,
            template="%(expressions)s",
            arg_joiner=" < " if name == "place__lt" else " > ",
            output_field=BooleanField(),
        )
        return replace(self, queryset=self.queryset.filter(beyond))

    def sizes(self, *_names: str, size: Any) -> InTime[Any]:
        """Return the rows as dictionaries of `pk`, `place` and the expression `size`."""
        rows: QuerySet[Any] = self.queryset.values("pk", self.time, size=size)
        return replace(self, queryset=rows)

    @property
    def first(self) -> QuerySet[M]:
        """The queryset."""
        return self.queryset

    def __getitem__(self, part: slice) -> list[Any]:
        """Return a slice, which must have an end."""
        sign = "-" if self.backwards else ""
        rows: list[Any] = list(self.queryset.order_by(f"{sign}{self.time}", f"{sign}pk")[part])
        for row in rows:
            row["place"] = f"{(row[self.time] - _EPOCH) // timedelta(microseconds=1)}.{row['pk']}"
        return rows


def _row(*values: Any) -> Func:
    return Func(*values, function="ROW", output_field=BooleanField())
