"""Lists of large tables: each request reads one page, never the whole table."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Field, IntegerField, Model, Q, QuerySet, UUIDField
from django.http import HttpRequest

from sessions_app.admin.base import PageAdmin, ReadOnlyAdmin
from sessions_app.admin.unfold import InfinitePaginator
from sessions_app.models import Session

M = TypeVar("M", bound=Model)
MOST_SESSIONS = 20  # of those with the key that is searched for; each agent may have one


class Uncounted(PageAdmin[M]):
    """A list in one order, along an index, whose rows are not counted.

    A search compares the term with the `=…` fields first: ids, if the term can be one, then the others one at a time,
    since an OR over two tables would read both. If nothing is found, it looks for parts of the other fields.
    """

    paginator = InfinitePaginator
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        class InOneOrder(super().get_changelist(request, **kwargs)):  # type: ignore[misc]
            def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
                """Ignore the order in the URL: no index has the other orders."""
                self.params.pop(ORDER_VAR, None)
                return super().get_ordering(request, queryset)  # type: ignore[no-any-return]

        return InOneOrder

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
        for word in term.split():
            queryset = queryset.filter(
                Q.create([(f"{name}__icontains", word) for name in loose], connector=Q.OR)
            )
        return queryset, False

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


class ValueFilter(admin.SimpleListFilter):
    """A filter by values that the code knows. Django would read the whole table to find them."""

    def values(self) -> Iterable[str]:
        """The possible values."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, value) for value in self.values()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(Q((str(self.parameter_name), self.value()))) if self.value() else queryset
