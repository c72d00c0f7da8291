"""The base of all views: strict input, ETags, pages, idempotent creation."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast
from urllib.parse import parse_qs, quote

from django.contrib.auth.models import User
from django.db import DataError
from django.db.models import QuerySet
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, NotFound, PermissionDenied
from rest_framework.pagination import CursorPagination
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.http import headers
from interfaces.http.query import ChecksQuery, Parameter
from sessions_app import idempotency
from sessions_app.exceptions import BadInput, BeyondLimit, InsufficientScope
from sessions_app.models import TokenScope
from sessions_app.postgres.pages import PagedQuery, how_many_fit
from sessions_app.tokens.reach import limit_of

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
    """The direction of an ordering, `asc` or `desc`: all of its fields have the same."""
    return "desc" if ordering[0].startswith("-") else "asc"


def _bad_cursor() -> BadInput:
    text = "was not made by this server; start again without it"
    return BadInput(f"the cursor {text}", code="bad_cursor", errors={"cursor": [text]})


KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": headers.LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="The same key and body give the same answer.",
)
Shape = type[serializers.BaseSerializer[Any]]
OutputShape = type[serializers.Serializer[Any]]
Tag = Callable[[Mapping[str, Any]], str]
NO_STORE = {"Cache-Control": "no-store"}


class EventStreamRenderer(JSONRenderer):
    """Accepts `Accept: text/event-stream`; errors are still JSON problems."""

    media_type = "text/event-stream"
    format = "event-stream"


class ZipRenderer(JSONRenderer):
    """Accepts `Accept: application/zip`; errors are still JSON problems."""

    media_type = "application/zip"
    format = "zip"


class ApiView(ChecksQuery):
    """A view of resources of the requesting user.

    `ordering`: the fields that order its list; together they are unique.
    `takes`: its query parameters by method; a list also has the parameters of pagination.
    `refuses`: by method, statuses for the OpenAPI schema beyond those that `schema.openapi` adds by itself.
    `scopes`: by method, the scope that a token needs; without one, no token may use the method.
    `within_limits`: methods that a limited token may use without an id in the address: they return what it reaches.
    """

    http_method_names = ["get", "head", "post", "put", "patch", "delete"]
    pagination_class = CursorPage
    ordering: tuple[str, ...] = ()
    refuses: Mapping[str, tuple[int, ...]] = {}
    scopes: Mapping[str, TokenScope] = {}
    within_limits: AbstractSet[str] = frozenset()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, authorize and throttle. Requests that are not authenticated are throttled by address."""
        try:
            super().initial(request, *args, **kwargs)
        except (NotAuthenticated, AuthenticationFailed, PermissionDenied, InsufficientScope, BeyondLimit):
            self.check_throttles(request)
            raise

    def takes_by(self, method: str) -> tuple[Parameter, ...]:
        """The query parameters of a method, with those of pagination for a list."""
        pages = self.pagination_class.parameters if self.ordering and method in {"get", "head"} else ()
        return (*super().takes_by(method), *pages)

    @property
    def user(self) -> User:
        """The authenticated user."""
        return cast("User", self.request.user)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add an ETag to each representation; 304 for a client that has it already."""
        is_read = request.method in {"GET", "HEAD"} and response.status_code == status.HTTP_200_OK
        if is_read and isinstance(response, Response):
            if "ETag" not in response:
                response["ETag"] = headers.etag_of(response.data)
            response = get_conditional_response(request, etag=response["ETag"], response=response)
        return super().finalize_response(request, response, *args, **kwargs)

    def read(self, shape: Shape, *, partial: bool = False, of: OutputShape | None = None) -> dict[str, Any]:
        """The validated input. ValidationError. `of`: the output serializer of the changed resource."""
        if not isinstance(self.request.data, Mapping):
            raise serializers.ValidationError({"body": ["A JSON object is expected."]})
        fixed = frozenset(of().get_fields()) if of else frozenset()
        given = shape(data=self.request.data, partial=partial, context={"fixed": fixed})
        given.is_valid(raise_exception=True)
        return cast("dict[str, Any]", given.validated_data)

    def page(
        self,
        rows: QuerySet[Any] | PagedQuery[Any],
        shape: Shape,
        of: Callable[[Any], Any] | None = None,
    ) -> Response:
        """One page of rows."""
        paginator = self.pagination_class()
        found = paginator.paginate_queryset(cast("Any", rows), self.request, view=self) or []
        shown = [of(row) for row in found] if of else found
        return paginator.get_paginated_response(shape(shown, many=True).data)

    def create(
        self,
        make: Callable[[], Mapping[str, Any]],
        location: str,
        tag: Tag = lambda body: headers.etag(body["revision"]),
        created: int = status.HTTP_201_CREATED,
    ) -> Response:
        """The answer to a POST that makes something; the same Idempotency-Key and body give the same answer.

        `make` returns the body, and `location` names fields of it. The ETag is the revision, or what `tag` computes.
        """

        def answered() -> idempotency.StoredAnswer:
            body = dict(make())
            address = location.format_map({name: quote(str(value)) for name, value in body.items()})
            return idempotency.StoredAnswer(body=body, location=address, status=created)

        if (key := headers.idempotency_key(self.request)) is None:
            answer = answered()
        else:
            address = limit_of(self.user).own(f"{self.request.method} {self.request.path}")
            asked = idempotency.IdempotentRequest(
                user_id=self.user.pk, address=address, key=key, data=self.request.data
            )
            answer = idempotency.idempotent(asked, answered)
        given = {"Location": answer.location, "ETag": tag(answer.body)}
        return Response(answer.body, status=answer.status, headers=given)

    def check_value(
        self, name: str, known: Collection[str], rows: Callable[[dict[str, str]], PagedQuery[Any]]
    ) -> None:
        """BadInput for a filter's value that is neither `known` nor stored in `rows`: plugins have values of their own.

        `rows`: the user's rows with this value.
        """
        value = self.parameter(name)
        if value is None or value in known or rows({name: value}).exists():
            return
        text = f"must be one of {', '.join(sorted(known))}"
        raise BadInput(f"query parameter {name!r} {text}", code="bad_parameter", errors={name: [text]})


def tagged_response(data: Mapping[str, Any], basis: int | str, *, is_volatile: bool = False) -> Response:
    """200 with an ETag of the revision, or basis. `is_volatile`: some fields change by themselves."""
    return Response(data, headers={"ETag": headers.etag(basis, data if is_volatile else None)})
