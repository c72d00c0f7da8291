"""What every view shares: read input strictly, answer with a tag, page, create once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sessions_app import once
from sessions_app.api import conditions
from sessions_app.api.pages import CursorPage
from sessions_app.delete import Deletion
from sessions_app.exceptions import BadInput

KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": conditions.LONGEST_KEY, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="The same key and body give the same answer.",
)
Shape = type[serializers.BaseSerializer[Any]]
OutputShape = type[serializers.Serializer[Any]]
Tag = Callable[[Mapping[str, Any]], str]


class ApiView(APIView):
    """A view of the requesting user's own things. `ordering` is that of its list, unique as a whole.

    `refuses`: by method, the statuses of refusals that do not follow from its kind (config.schema), for the docs.
    """

    http_method_names = ["get", "head", "post", "put", "patch", "delete"]
    pagination_class = CursorPage
    ordering: tuple[str, ...] = ()
    refuses: Mapping[str, tuple[int, ...]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Who asks, what they may, how often. DRF counts those who may; who may not is counted by address."""
        try:
            super().initial(request, *args, **kwargs)
        except (NotAuthenticated, AuthenticationFailed, PermissionDenied):
            self.check_throttles(request)
            raise

    @property
    def user(self) -> User:
        """Who asks."""
        return cast("User", self.request.user)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """What is shown has a tag, and is not shown again to who has it already."""
        if (
            request.method in {"GET", "HEAD"}
            and isinstance(response, Response)
            and response.status_code == 200
        ):
            tag = response.headers.get("ETag") or conditions.etag_of(response.data)
            response["ETag"] = tag
            if conditions.is_known(request, tag):
                response = Response(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
        return super().finalize_response(request, response, *args, **kwargs)

    def read(self, shape: Shape, *, partial: bool = False, of: OutputShape | None = None) -> dict[str, Any]:
        """The input, checked by its shape. ValidationError. `of`: the shape of what is changed."""
        if not isinstance(self.request.data, Mapping):
            raise serializers.ValidationError({"body": ["A JSON object is expected."]})
        fixed = frozenset(of().get_fields()) if of else frozenset()
        given = shape(data=self.request.data, partial=partial, context={"fixed": fixed})
        given.is_valid(raise_exception=True)
        return cast("dict[str, Any]", given.validated_data)

    def page(self, rows: QuerySet[Any], shape: Shape, of: Callable[[Any], Any] | None = None) -> Response:
        """One page; `of` turns a row into what the shape shows."""
        paginator = self.pagination_class()
        found = paginator.paginate_queryset(rows, self.request, view=self) or []
        shown = [of(row) for row in found] if of else found
        return paginator.get_paginated_response(shape(shown, many=True).data)

    def create(self, make: Callable[[], once.Answer], tag: Tag | None = None) -> Response:
        """Make something; the same Idempotency-Key and body give the same answer. `tag`: of what was made."""
        key = conditions.idempotency_key(self.request)
        if key is None:
            return created(make(), tag)
        address = f"{self.request.method} {self.request.path}"
        asked = once.Request(user_id=self.user.pk, address=address, key=key, data=self.request.data)
        return created(once.once(asked, make), tag)

    def flag(self, name: str) -> bool:
        """A query parameter that is `true` or `false`. BadInput."""
        given = self.request.query_params.get(name, "false")
        if given not in {"true", "false"}:
            raise BadInput(f"{name} must be true or false", code="bad_parameter")
        return given == "true"

    def parameter(self, name: str) -> str | None:
        """A query parameter's text. BadInput for what no column can hold."""
        given = self.request.query_params.get(name)
        if given is not None and "\x00" in given:
            raise BadInput(f"{name} holds a NUL character", code="bad_parameter")
        return given


def created(answer: once.Answer, tag: Tag | None) -> Response:
    """201 with the address of what was made, and its tag: its revision unless `tag` says otherwise."""
    etag = tag(answer.body) if tag else conditions.etag(answer.body["revision"])
    headers = {"Location": answer.location, "ETag": etag}
    return Response(answer.body, status=answer.status, headers=headers)


def shown(data: Mapping[str, Any], revision: int | None = None) -> Response:
    """200 with a tag: the revision, else a hash."""
    tag = conditions.etag_of(data) if revision is None else conditions.etag(revision)
    return Response(data, headers={"ETag": tag})


def deleted(deletion: Deletion) -> Response:
    """What came of the two steps: 409 with what is in the way, or 200 with what went along."""
    if deletion.deleted:
        return Response({"deleted": True, "deleted_automations": list(deletion.deleted_ids)})
    automations = [{"id": each.id, "name": each.name, "enabled": each.enabled} for each in deletion.blockers]
    body = {"deleted": False, "blocked_by_automations": True, "automations": automations}
    return Response(body, status=status.HTTP_409_CONFLICT)
