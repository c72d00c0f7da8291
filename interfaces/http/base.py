"""The base of all views: strict input, ETags, pages, idempotent creation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.http import filters, headers
from interfaces.http.pagination import CursorPage
from interfaces.http.query import ChecksQuery, Parameter
from sessions_app import idempotency
from sessions_app.exceptions import BadInput, BeyondLimit, InsufficientScope
from sessions_app.models import TokenScope
from sessions_app.postgres.compiled import Keyed
from sessions_app.postgres.merged_rows import Merged
from sessions_app.sessions.thread_history import Beside
from sessions_app.tokens.limits import limit_of

KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": headers.LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="The same key and body give the same answer.",
)
Shape = type[serializers.BaseSerializer[Any]]
OutputShape = type[serializers.Serializer[Any]]
Tag = Callable[[Mapping[str, Any]], str]


class ApiView(ChecksQuery):
    """A view of resources of the requesting user.

    `ordering`: the fields that order its list; together they are unique.
    `takes`: its query parameters by method; a list also has those of pagination.
    `refuses`: by method, statuses for the OpenAPI schema beyond those that `schema.openapi` adds by itself.
    `scopes`: by method, the scope that a token needs; a method without one is for no token.
    `within_limits`: at an address that names nothing, the methods that reach only what a limited token reaches.
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
        if (
            request.method in {"GET", "HEAD"}
            and isinstance(response, Response)
            and response.status_code == 200
        ):
            tag = response.headers.get("ETag") or headers.etag_of(response.data)
            response["ETag"] = tag
            if headers.is_known(request, tag):
                response = Response(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
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
        rows: QuerySet[Any] | Merged[Any] | Beside | Keyed[Any],
        shape: Shape,
        of: Callable[[Any], Any] | None = None,
    ) -> Response:
        """One page of rows."""
        paginator = self.pagination_class()
        found = paginator.paginate_queryset(cast("Any", rows), self.request, view=self) or []
        shown = [of(row) for row in found] if of else found
        return paginator.get_paginated_response(shape(shown, many=True).data)

    def create(self, make: Callable[[], idempotency.StoredAnswer], tag: Tag | None = None) -> Response:
        """201 with a new resource; the same Idempotency-Key and body give the same answer.

        Its ETag is its revision unless `tag` computes another one.
        """
        key = headers.idempotency_key(self.request)
        if key is None:
            answer = make()
        else:
            address = limit_of(self.user).own(f"{self.request.method} {self.request.path}")
            asked = idempotency.IdempotentRequest(
                user_id=self.user.pk, address=address, key=key, data=self.request.data
            )
            answer = idempotency.idempotent(asked, make)
        etag = tag(answer.body) if tag else headers.etag(answer.body["revision"])
        return Response(
            answer.body, status=answer.status, headers={"Location": answer.location, "ETag": etag}
        )

    def is_true(self, name: str) -> bool:
        """Whether a query parameter is `true`."""
        return self.parameter(name) == "true"

    def wanted(self, lookups: Mapping[str, str]) -> dict[str, Any]:
        """The given query parameters as conditions of a queryset, by the `lookups` of their names."""
        return filters.wanted(self.request.query_params, self.takes["get"], lookups)

    def check_value(
        self, name: str, known: Collection[str], rows: Callable[[dict[str, str]], Keyed[Any]]
    ) -> None:
        """BadInput for a filter's value that is neither `known` nor found: plugins have values of their own.

        `rows`: the user's rows with this value.
        """
        value = self.parameter(name)
        if value is None or value in known or rows({name: value}).keys.first.exists():
            return
        text = f"must be one of {', '.join(sorted(known))}"
        raise BadInput(f"query parameter {name!r} {text}", code="bad_parameter", errors={name: [text]})

    @property
    def term(self) -> str:
        """What a list is searched for; empty for no search."""
        return self.parameter(filters.SEARCH) or ""

    def parameter(self, name: str) -> str | None:
        """The value of a query parameter; None when it is not given."""
        return self.request.query_params.get(name)


def tagged_response(data: Mapping[str, Any], revision: int | None = None) -> Response:
    """200 with an ETag: the revision, or a hash without one."""
    tag = headers.etag_of(data) if revision is None else headers.etag(revision)
    return Response(data, headers={"ETag": tag})
