"""Cursor pagination in a stable order."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from urllib.parse import parse_qs

from django.db import DataError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination

from interfaces.http.query import Parameter
from sessions_app.exceptions import BadInput
from sessions_app.postgres.pages import PagedQuery, how_many_fit

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
        """The place of a `PagedQuery`, in the requested direction, which is by default the view's."""
        is_down = request.query_params.get(ORDER.name, order_of(view.ordering)) == "desc"
        return ("-place",) if is_down else ("place",)

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
        listed = queryset
        if isinstance(queryset, QuerySet):
            names = tuple(name.removeprefix("-") for name in view.ordering)
            listed = PagedQuery(parts=[queryset], order=names)
        try:
            page: list[Any] = super().paginate_queryset(listed, request, view) or []
            is_reversed = self.cursor and self.cursor.reverse
            self._fitting = how_many_fit(reversed(page) if is_reversed else page) or LONGEST_PAGE
            if self._fitting < len(page):
                page = super().paginate_queryset(listed, request, view) or []
            return listed.rows(page)
        except (ValueError, OverflowError, DataError):
            if request.query_params.get(self.cursor_query_param) is None:
                raise
            raise _bad_cursor() from None  # its position does not fit the ordering's column


def order_of(ordering: tuple[str, ...]) -> str:
    """The direction of an ordering, whose fields all have the same."""
    return "desc" if ordering[0].startswith("-") else "asc"


def _bad_cursor() -> BadInput:
    text = "was not made by this server; start again without it"
    return BadInput(f"the cursor {text}", code="bad_cursor", errors={"cursor": [text]})
