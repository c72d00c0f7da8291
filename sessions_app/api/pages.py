"""Cursor pages in a stable order."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from urllib.parse import parse_qs

from django.core.exceptions import ValidationError
from django.db import DataError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination

from sessions_app.exceptions import BadInput

LONGEST_PAGE = 200
_KEYS = {"o", "r", "p"}  # offset, reverse, position, as CursorPagination writes them
LONGEST_NUMBER = 6  # digits


class CursorPage(CursorPagination):
    """Pages in the view's `ordering`, whose fields together are unique. `page_size` is 1 to 200, else 50."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = LONGEST_PAGE

    def get_schema_operation_parameters(self, view: Any) -> Any:
        """What the OpenAPI schema says of a list's query."""
        cursor, size = super().get_schema_operation_parameters(view)
        cursor["description"] = "Where the page begins, as `next` and `previous` give it."
        size["description"] = "Entries of a page."
        size["schema"] |= {"minimum": 1, "maximum": LONGEST_PAGE, "default": self.page_size}
        return [cursor, size]

    def get_ordering(self, request: Any, queryset: Any, view: Any) -> Any:  # noqa: ARG002 - DRF's signature
        """The view's."""
        return tuple(view.ordering)

    def get_page_size(self, request: Any) -> int | None:
        """BadInput `bad_page_size`."""
        given = request.query_params.get(self.page_size_query_param)
        if given is None:
            return self.page_size
        plain = given.isascii() and given.isdigit() and len(given) <= LONGEST_NUMBER
        if not (plain and 1 <= int(given) <= LONGEST_PAGE):
            raise BadInput(f"page_size must be a number from 1 to {LONGEST_PAGE}", code="bad_page_size")
        return int(given)

    def decode_cursor(self, request: Any) -> Any:
        """The cursor. BadInput `bad_cursor` for one that we cannot have made."""
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
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, ValidationError, OverflowError, DataError):
            if request.query_params.get(self.cursor_query_param) is None:
                raise
            raise _bad_cursor() from None  # its position is no value of the ordering's column


def _bad_cursor() -> BadInput:
    return BadInput("the cursor is not one of ours; begin again without it", code="bad_cursor")
