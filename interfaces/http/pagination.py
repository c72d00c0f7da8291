"""Cursor pagination in a stable order."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from urllib.parse import parse_qs

from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination

from interfaces.http.query import Parameter
from sessions_app.exceptions import BadInput
from sessions_app.postgres.compiled import Keyed
from sessions_app.postgres.merged_rows import Merged
from sessions_app.postgres.sizes import how_many_fit, size_of_rows

LONGEST_PAGE = 200
ORDER = Parameter(
    name="order",
    description="The direction of the list. When not given: as the list is described.",
    choices=("asc", "desc"),
)
_KEYS = {"o", "r", "p"}  # offset, reverse, position in a cursor of CursorPagination
LONGEST_NUMBER = 6  # digits


class CursorPage(CursorPagination):
    """Pages in the view's `ordering`, whose fields together are unique. `page_size` is 1 to 200, by default 50.

    A page of long texts has fewer rows; `next` continues after the last.
    """

    page_size = 50
    _fitting = LONGEST_PAGE
    page_size_query_param = "page_size"
    max_page_size = LONGEST_PAGE

    parameters = (
        ORDER,
        Parameter(
            name=CursorPagination.cursor_query_param,
            description="Where the page begins, from `next` or `previous`.",
        ),
        Parameter(
            name=page_size_query_param,
            description="Entries in a page.",
            schema={"type": "integer", "minimum": 1, "maximum": LONGEST_PAGE, "default": page_size},
        ),
    )

    def get_schema_operation_parameters(self, view: Any) -> Any:  # noqa: ARG002 - DRF's signature
        """Empty: interfaces.http.schema.openapi adds the parameters."""
        return []

    def get_ordering(self, request: Any, queryset: Any, view: Any) -> Any:  # noqa: ARG002 - DRF's signature
        """The view's ordering, turned around if the request asks for the other direction."""
        names = tuple(view.ordering)
        if request.query_params.get(ORDER.name, order_of(names)) == order_of(names):
            return names
        return tuple(name[1:] if name.startswith("-") else f"-{name}" for name in names)

    def get_page_size(self, request: Any) -> int | None:
        """The requested size, less when long rows do not fit. BadInput `bad_page_size`."""
        given = request.query_params.get(self.page_size_query_param)
        if given is None:
            return min(self.page_size, self._fitting)
        plain = given.isascii() and given.isdigit() and len(given) <= LONGEST_NUMBER
        if not (plain and 1 <= int(given) <= LONGEST_PAGE):
            text = f"must be a number from 1 to {LONGEST_PAGE}"
            raise BadInput(f"page_size {text}", code="bad_page_size", errors={"page_size": [text]})
        return min(int(given), self._fitting)

    def decode_cursor(self, request: Any) -> Any:
        """The cursor. BadInput `bad_cursor` for one that this server cannot have made."""
        given = request.query_params.get(self.cursor_query_param)
        if given is None:
            return None
        try:
            text = b64decode(given.encode("ascii"), validate=True).decode("ascii")
            known = text == "" or set(parse_qs(text, keep_blank_values=True, strict_parsing=True)) <= _KEYS
        except ValueError:
            known = False
        if not known:
            raise _bad_cursor()
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise _bad_cursor() from None

    def paginate_queryset(self, queryset: Any, request: Any, view: Any = None) -> Any:
        """One page of rows. BadInput."""
        try:
            if isinstance(queryset, Keyed):
                return self._keyed(queryset, request, view)
            rows = Merged(queryset) if isinstance(queryset, QuerySet) else queryset
            size = size_of_rows(rows.first)
            if size is not None:  # measure before fetching: a row may have megabytes
                self._measure(rows.sizes(*self._names(request, view), size=size), request, view)
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, ValidationError, OverflowError, DataError):
            if request.query_params.get(self.cursor_query_param) is None:
                raise
            raise _bad_cursor() from None  # its position does not fit the ordering's column

    def _keyed(self, queryset: Keyed[Any], request: Any, view: Any) -> list[Any]:
        size = size_of_rows(queryset.keys.first)
        size = size if queryset.beside is None else size + queryset.beside
        keys: Any = queryset.keys.sizes("pk", *self._names(request, view), size=size)
        page = self._measure(keys, request, view)
        if self._fitting < len(page):
            page = super().paginate_queryset(keys, request, view) or []
        return queryset.rows([row["pk"] for row in page])

    def _names(self, request: Any, view: Any) -> list[str]:
        return [name.lstrip("-") for name in self.get_ordering(request, None, view)]

    def _measure(self, sizes: Any, request: Any, view: Any) -> list[Any]:
        """Find out how many rows of the page fit. `sizes`: its rows with their `size`, sliced like a queryset."""
        page: list[Any] = super().paginate_queryset(sizes, request, view) or []
        is_reversed = self.cursor and self.cursor.reverse
        self._fitting = how_many_fit(reversed(page) if is_reversed else page) or LONGEST_PAGE
        return page


def order_of(ordering: tuple[str, ...]) -> str:
    """The direction of an ordering, whose fields all have the same."""
    return "desc" if ordering[0].startswith("-") else "asc"


def _bad_cursor() -> BadInput:
    text = "was not made by this server; start again without it"
    return BadInput(f"the cursor {text}", code="bad_cursor", errors={"cursor": [text]})
