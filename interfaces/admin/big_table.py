"""Lists of large tables: each request reads one page, never the whole table."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Field, IntegerField, Model, Q, QuerySet, UUIDField
from django.http import HttpRequest

from interfaces.admin.base import PageAdmin, ReadOnlyAdmin
from interfaces.admin.unfold import InfinitePaginator, RangeDateTimeFilter
from sessions_app.models import Session

M = TypeVar("M", bound=Model)
MOST_FILTERED = 50_000  # rows that a filter without an index looks at
MOST_SESSIONS = 20  # of those with the key that is searched for; each agent may have one


class Uncounted(PageAdmin[M]):
    """A list in one order, along an index, whose rows are not counted.

    A search compares the term with the `=…` fields first: ids, if the term can be one, then the others one at a time,
    since an OR over two tables would read both. If nothing is found, it looks for parts of the other fields.
    """

    paginator = InfinitePaginator
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()

    # a column in the list's order: filters look only at the newest MOST_FILTERED rows by it; empty: at all rows
    bounded_by = ""
    read_by_index: Sequence[str] = ()  # filters that an index serves, which look at all rows
    list_before_template = "admin/rondo/cut.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        page = self

        class InOneOrder(super().get_changelist(request, **kwargs)):  # type: ignore[misc]
            most_filtered = f"{MOST_FILTERED:,}"

            def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
                """Ignore the order in the URL: no index has the other orders."""
                self.params.pop(ORDER_VAR, None)
                return super().get_ordering(request, queryset)  # type: ignore[no-any-return]

            def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
                """The rows; with filters that no index serves, only those among the newest."""
                rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
                chosen = set(self.get_filters_params())
                self.cut_at = None if self.query else page.cut_at(request, chosen)
                return rows if self.cut_at is None else rows.filter((f"{page.bounded_by}__gte", self.cut_at))

        return InOneOrder

    def cut_at(self, request: HttpRequest, chosen: set[str]) -> Any:
        """The value of `bounded_by` from which on rows are read, if these filters would read all; else None."""
        ranges = {name for name in chosen if name.startswith(f"{self.bounded_by}_")}
        if not self.bounded_by or chosen & set(self.read_by_index) or not chosen - ranges:
            return None
        values = self.newest(request).order_by(f"-{self.bounded_by}").values_list(self.bounded_by, flat=True)
        return next(iter(values[MOST_FILTERED : MOST_FILTERED + 1]), None)

    def newest(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows of which filters look at the newest."""
        return QuerySet(self.model)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M], search_term: str
    ) -> tuple[QuerySet[M], bool]:
        names = list(self.get_search_fields(request))
        exact = [name[1:] for name in names if name.startswith("=")]
        term = search_term.strip()
        if not term or not exact:
            return super().get_search_results(request, queryset, search_term)
        for condition in self._conditions(exact, term):
            found = queryset.filter(condition)
            if found.order_by().exists():
                return found, False
        loose = [name for name in names if not name.startswith("=")]
        if not loose or _is_uuid(term):
            return queryset.none(), False
        return self.with_parts(queryset, loose, term), False

    def with_parts(self, queryset: QuerySet[M], names: Sequence[str], term: str) -> QuerySet[M]:
        """The rows that have each word of the term in one of these fields."""
        for word in term.split():
            queryset = queryset.filter(
                Q.create([(f"{name}__icontains", word) for name in names], connector=Q.OR)
            )
        return queryset

    def _conditions(self, names: Iterable[str], term: str) -> Iterator[Q]:
        fields: dict[str, Any] = {name: get_fields_from_path(self.model, name)[-1] for name in names}
        ids = {name: field for name, field in fields.items() if isinstance(field, UUIDField | IntegerField)}
        for name, field in ids.items():
            if (value := _value(field, term)) is not None:
                yield Q((name, value))
        for name, field in fields.items():
            if name not in ids:
                yield _in_sessions(name, term) if field == _KEY and "__" in name else Q((name, term))


class BigTable(Uncounted[M], ReadOnlyAdmin[M]):
    """Read-only rows, newest first."""

    ordering = ["-pk"]


_KEY = Session._meta.get_field("key")


def _value(field: Field[Any, Any], term: str) -> Any:
    """The term as a value of the field; None if it cannot be one."""
    try:
        value = field.to_python(term)
        field.run_validators(value)
    except ValidationError:
        return None
    return value


def _is_uuid(term: str) -> bool:
    return _value(UUIDField(), term) is not None


def _in_sessions(name: str, key: str) -> Q:
    """A condition: the row's session has this key. `name` is the lookup, such as `session__key`."""
    ids = Session.objects.filter(key=key).order_by().values_list("pk", flat=True)
    return Q((f"{name.rpartition('__')[0]}__in", list(ids[:MOST_SESSIONS])))


class TimeRange(RangeDateTimeFilter):  # type: ignore[misc]  # it has no annotations
    """A filter by a range of time in UTC, both ends included. An end without a time of day is a whole day's."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        for end, lookup in (("from", "gte"), ("to", "lte")):
            instant = end_of_range(self.used_parameters, f"{self.field_path}_{end}")
            if instant is not None:
                queryset = queryset.filter((f"{self.field_path}__{lookup}", instant))
        return queryset


def end_of_range(given: Mapping[str, Any], name: str) -> datetime | None:
    """One end of a `TimeRange` in the parameters `<name>_0` (date) and `<name>_1` (time); None if it is none."""
    whole = "00:00:00" if name.endswith("_from") else "23:59:59.999999"
    try:
        text = f"{given.get(f'{name}_0', '')}T{given.get(f'{name}_1') or whole}"
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


class ValueFilter(admin.SimpleListFilter):
    """A filter by values that the code knows. Django would read the whole table to find them."""

    def values(self) -> Iterable[str]:
        """The possible values."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, value) for value in self.values()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(Q((str(self.parameter_name), self.value()))) if self.value() else queryset
