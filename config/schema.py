"""The OpenAPI schema: what every operation says beside its own input and answer follows from its kind, here."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction

from config.codes import CODES
from config.errors import PROBLEM

if TYPE_CHECKING:  # while rest_framework is loaded it asks for this module
    from sessions_app.api.base import ApiView

_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "description": "Why a request was refused (RFC 9457).",
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable; for programs."},
        "detail": {"type": "string", "description": "A sentence; for people."},
        "errors": {
            "type": "object",
            "description": "Sentences by field.",
            "additionalProperties": {"type": "array", "items": _TEXT},
        },
    },
    "required": ["type", "title", "status", "code", "detail"],
}
_TAG = {"description": "The tag of what is shown.", "schema": _TEXT}
_LOCATION = {
    "description": "The address of what was made.",
    "schema": {"type": "string", "format": "uri-reference"},
}
_APPLIED = {"description": "`wait=N`, when it was waited for.", "schema": _TEXT}
_REFUSAL_HEADERS = {
    401: {"WWW-Authenticate": {"description": "`Token`; `Bearer` at a hook.", "schema": _TEXT}},
    429: {
        "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
    },
}
_IF_MATCH = {
    "in": "header",
    "name": "If-Match",
    "schema": _TEXT,
    "description": "Change it only if its tag is one of these; `*` is any.",
}
_IF_NONE_MATCH = {
    "in": "header",
    "name": "If-None-Match",
    "schema": _TEXT,
    "description": "Answer 304 if its tag is one of these.",
}
_CHANGES = {"PUT", "PATCH", "DELETE"}
_ONCE = {"Idempotency-Key", "Webhook-Id"}


class Schema(AutoSchema):
    """An operation with all its refusals and headers. A view's `refuses` names those that are its own."""

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """The operation, completed."""
        operation = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        parameters = operation.setdefault("parameters", [])
        parameters += self._conditions()
        named = {each["name"] for each in parameters if each["in"] != "path"}
        for status, answer in operation["responses"].items():
            answer["description"] = answer["description"] or f"{HTTPStatus(int(status)).phrase}."
            if headers := self._headers(int(status), named):
                answer["headers"] = headers
        if "If-None-Match" in named:
            operation["responses"]["304"] = {
                "description": "Not changed.",
                "headers": {"ETag": _TAG},
            }
        for code in self._refusals(named, has_body="requestBody" in operation):
            _refuse(operation["responses"], code)
        return operation

    def _takes_browsers(self) -> bool:
        from rest_framework.authentication import SessionAuthentication

        return SessionAuthentication in self.view.authentication_classes

    def _streams(self) -> bool:
        return self.view.renderer_classes[0].media_type == "text/event-stream"

    def _conditions(self) -> list[dict[str, Any]]:
        if self.method == "GET" and not self._streams():
            return [_IF_NONE_MATCH]
        return [_IF_MATCH] if self.method in _CHANGES else []

    def _headers(self, status: int, named: set[str]) -> dict[str, Any]:
        headers: dict[str, Any] = {}
        if status in {201, 202} or "Prefer" in named:
            headers["Location"] = _LOCATION
        if status == 200 and "Prefer" in named:
            headers["Preference-Applied"] = _APPLIED
        if status == 201 or (
            status == 200 and named & {"If-None-Match", "If-Match"} and self.method != "DELETE"
        ):
            headers["ETag"] = _TAG
        return headers

    def _refusals(self, named: set[str], *, has_body: bool) -> list[int]:
        found = {401, 406, 429, 500, *cast("ApiView", self.view).refuses.get(self.method.lower(), ())}
        if has_body or named - {"If-None-Match", "Prefer"}:
            found.add(400)
        if "{" in self.path:
            found.add(404)
        if self.method != "GET":
            found |= {403, 413} if self._takes_browsers() else {413}
        if has_body:
            found.add(415)
        if self.method in _CHANGES:
            found.add(412)
        if named & _ONCE:
            found.add(422)
        return sorted(found)


def _refuse(responses: dict[str, Any], status: int) -> None:
    answer = responses.setdefault(
        str(status), {"description": f"{HTTPStatus(status).phrase}.", "content": {}}
    )
    answer["content"][PROBLEM] = {"schema": {"$ref": f"#/components/schemas/Problem{status}"}}
    if headers := _REFUSAL_HEADERS.get(status):
        answer["headers"] = headers


class KnownKeys(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Input with known keys only says so."""

    target_class = "sessions_app.api.fields.Input"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> Any:
        """The shape, closed."""
        describe: Any = auto_schema._map_serializer  # noqa: SLF001 - as the docs of extensions say
        return describe(self.target, direction, bypass_extensions=True) | {"additionalProperties": False}


class OfHooks(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Who posts by a hook has its token, or signs with it."""

    target_class = "sessions_app.api.hook_auth.HookAuthentication"
    name = ["hookToken", "hookSignature"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> Any:  # noqa: ARG002 - the library's signature
        """Either is enough, unless the hook takes signed messages only."""
        return [{"hookToken": []}, {"hookSignature": []}]

    def get_security_definition(self, auto_schema: AutoSchema) -> Any:  # noqa: ARG002 - the library's signature
        """`Authorization: Bearer rin_…`, and the header of a signature."""
        signature = (
            "`v1,` and the base64 of HMAC-SHA256 of `<Webhook-Id>.<Webhook-Timestamp>.<body>` with the token."
        )
        return [
            {"type": "http", "scheme": "bearer", "description": "A hook's token."},
            {"type": "apiKey", "in": "header", "name": "Webhook-Signature", "description": signature},
        ]


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The shape of a problem, and for each status the codes that it may have."""
    schemas = result["components"]["schemas"]
    schemas["Problem"] = _PROBLEM
    for status, codes in CODES.items():
        known = {
            "status": {"type": "integer", "enum": [status]},
            "code": {"type": "string", "enum": list(codes)},
        }
        schemas[f"Problem{status}"] = {
            "allOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "object", "properties": known}]
        }
    return result
