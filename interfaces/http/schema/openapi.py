"""The OpenAPI schema: adds errors, headers, parameters and examples that follow from the kind of an operation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction

from agent_core.text.formats import status_phrase
from interfaces.http.errors.codes import CODES, PROBLEM
from interfaces.http.fields import MOST_ERRORS
from interfaces.protocols import API_VERSION, VERSION_HEADER

if TYPE_CHECKING:  # rest_framework imports this module while it is loaded
    from interfaces.http.base import ApiView


ACTIONS = {"answer", "cancel", "explain", "preview", "redeliver", "retry", "skip", "move", "test"}
VERBS = {"GET": "get", "POST": "create", "PATCH": "update", "PUT": "replace", "DELETE": "delete"}
ONE_THING = {"memory", "preferences"}  # no lists, whatever their names say
TAGS = {
    "agents": "Agents, their documents and preferences, and the events for all their windows.",
    "sessions": "Conversations: messages, events, memory and mailbox.",
    "turns": "What a message or an automation makes the agent do.",
    "automations": "Schedules of a session: every run is a turn.",
    "pauses": "Pause all automations and routines at once.",
    "routines": "An agent's recurring tasks, which also stand in HEARTBEAT.md.",
    "runs": "One slot of an automation, a routine or a scheduled message, and what became of it.",
    "scheduled-messages": "Texts that are sent at a time, without a model.",
    "schedules": "Check a schedule before it is used.",
    "executions": "Plans of agents with the engine `planner`, and their questions.",
    "questions": "Questions for consent before a tool is used.",
    "deliveries": "Answers on their way to a channel.",
    "hooks": "Addresses by which other systems post messages.",
    "connections": "Providers of models, with your own keys.",
    "telegram": "An agent's Telegram bot and its chats.",
    "tokens": "Tokens of programs.",
    "usage": "Tokens and US dollars of your turns.",
    "export": "Everything of yours as one archive.",
    "stream-tickets": "Tickets with which the EventSource of a browser opens a stream.",
}


_EXCEPTIONS = {
    ("POST", "sessions/messages"): "send_message",
    ("POST", "hooks/messages"): "post_hook_message",
    ("POST", "hooks/token"): "replace_hook_token",
    ("POST", "agents/signing-secret"): "replace_signing_secret",
    ("GET", "agents/signing-secret"): "get_signing_secret",
    ("POST", "agents/telegram"): "create_telegram_bot",
    ("GET", "agents/telegram"): "get_telegram_bot",
    ("PATCH", "agents/telegram"): "update_telegram_bot",
    ("DELETE", "agents/telegram"): "delete_telegram_bot",
    ("GET", "agents/telegram/chats"): "list_telegram_chats",
    ("DELETE", "agents/telegram/chats/*"): "delete_telegram_chat",
    ("POST", "agents/telegram/code"): "create_telegram_code",
    ("GET", "agents/events"): "stream_agent_events",
    ("GET", "sessions/events"): "stream_session_events",
    ("GET", "sessions/mailbox"): "list_session_mailbox",
    ("POST", "automations/skip"): "skip_automation_slots",
    ("POST", "automations/move"): "move_automation_slot",
    ("POST", "pauses"): "pause_all",
    ("DELETE", "scheduled-messages/*"): "cancel_scheduled_message",
}


def tag_of(path: str) -> str:
    """The tag of an operation: the last resource in its path that has one."""
    segments = _segments(path)
    return next((each for each in reversed(segments) if each in TAGS), segments[0])


def id_of(method: str, path: str) -> str:
    """The id of an operation, such as `list_agent_hooks`."""
    segments, is_item = _segments(path), path.rstrip("/").endswith("}")
    key = "/".join(segments) + ("/*" if is_item else "")
    if found := _EXCEPTIONS.get((method, key)):
        return found
    *parents, last = segments
    verb, thing = VERBS[method], _singular(last)
    if last in ONE_THING:
        thing = last
    elif method == "GET" and not is_item and last.endswith("s"):
        verb, thing = "list", last
    owner = [_singular(each) for each in parents]
    words = [last, *owner] if last in ACTIONS else [verb, *owner, thing]
    return "_".join(words).replace("-", "_")


def _segments(path: str) -> list[str]:
    """The names in a path under /api/, without its parameters."""
    return [each for each in path.strip("/").split("/")[1:] if not each.startswith("{")]


def _singular(word: str) -> str:
    return "delivery" if word == "deliveries" else word.removesuffix("s")


_TEXT = {"type": "string"}
_SECONDS = {"type": "integer", "minimum": 1}
_URL = {"type": "string", "format": "uri-reference"}
_PROBLEM = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "A stable code for programs."},
        "detail": {"type": "string", "description": "An explanation for people."},
        "errors": {
            "type": "object",
            "description": "Explanations by field.",
            "maxProperties": MOST_ERRORS,
            "additionalProperties": {"type": "array", "items": _TEXT},
        },
    },
    "required": ["type", "title", "status", "code", "detail"],
}


def _header(description: str, schema: Any = _TEXT) -> dict[str, Any]:
    return {"description": description, "schema": schema}


_ETAG = _header("The current version of the resource.")
_RETRY_AFTER = {"Retry-After": _header("Seconds to wait before the next attempt.", _SECONDS)}
_ERROR_HEADERS = {
    401: {"WWW-Authenticate": _header("`Token`, or `Bearer` for a hook.")},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_EVERYWHERE = {
    VERSION_HEADER: _header("The version of the API."),
    "X-Request-Id": _header("The id of the request, as the server's log has it."),
}
_COUNTED = {
    "RateLimit-Policy": _header('`"requests";q=…;w=…`: so many in so many seconds.'),
    "RateLimit": _header('`"requests";r=…;t=…`: so many are left now.'),
}


def _parameter(name: str, description: str, schema: Any = _TEXT) -> dict[str, Any]:
    return {"in": "header", "name": name} | _header(description, schema)


_IF_MATCH = _parameter("If-Match", "Change the resource only if its ETag is one of these; `*` matches any.")
_IF_NONE_MATCH = _parameter("If-None-Match", "Answer 304 if the ETag of the resource is one of these.")
_VERSION = _parameter(
    VERSION_HEADER,
    "The version that the client expects; 400 `unknown_version` from a server without it.",
    {"type": "string", "enum": [API_VERSION]},
)
_CHANGES = {"PUT", "PATCH", "DELETE"}
_ONCE = {"Idempotency-Key", "Webhook-Id"}

STREAM = "text/event-stream"
STREAMS = (STREAM, "application/zip")  # media types of answers without an ETag
# responses that were recorded from a server; a test compares them with what it answers
FOLDER = Path(__file__).parent / "answers"
PATH_PARAMETERS: dict[str, Any] = {  # examples by name
    "name": "demo",
    "document": "USER.md",
    "session_id": "0192f0c1-7a5e-4c3b-9d2e-000000000001",
    "connection": "work",
}
_ENVELOPE = {
    "v": 1,
    "event_id": "5120-77",
    "timestamp": "2026-11-24T09:00:00Z",
    "agent_name": "demo",
    "session_id": PATH_PARAMETERS["session_id"],
    "scope": "session",
    "source_type": "message",
    "run_id": None,
    "type": "turn_end",
    "content": {"turn": 17, "state": "succeeded", "error": None},
}
_EVENT = {"id": _ENVELOPE["event_id"], "event": _ENVELOPE["type"], "data": json.dumps(_ENVELOPE)}


class Schema(AutoSchema):
    """An operation with its errors and headers. A view's `refuses` names errors that do not follow from its kind.

    A POST that refuses with 412 takes If-Match.
    """

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """The operation with parameters, headers and errors."""
        operation = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        if scope := self._api_view.scopes.get(self.method.lower()):
            operation["x-required-scope"] = scope.value
        parameters = operation.setdefault("parameters", [])
        parameters += self._conditional_headers()
        parameters += [each.to_openapi() for each in self._api_view.takes_by(self.method.lower())]
        named = {each["name"] for each in parameters if each["in"] != "path"}
        for status, answer in operation["responses"].items():
            answer["description"] = answer["description"] or f"{status_phrase(int(status))}."
            if headers := self._headers(int(status), named):
                answer["headers"] = headers
        if "If-None-Match" in named:
            operation["responses"]["304"] = {"description": "Not modified.", "headers": {"ETag": _ETAG}}
        for status in self._errors(named, has_body="requestBody" in operation):
            _add_error(operation["responses"], status)
        _add_examples(operation)
        return operation

    def get_operation_id(self) -> str:
        """The id that follows from method and path."""
        return id_of(self.method, self.path)

    def get_summary(self) -> str:
        """The id in words."""
        return id_of(self.method, self.path).replace("_", " ").capitalize()

    def get_tags(self) -> list[str]:
        """The resource of the operation."""
        return [tag_of(self.path)]

    @property
    def _api_view(self) -> ApiView:
        return cast("ApiView", self.view)

    def _conditional_headers(self) -> list[dict[str, Any]]:
        if self.method == "GET":
            is_stream = self.view.renderer_classes[0].media_type in STREAMS
            return [] if is_stream else [_IF_NONE_MATCH]
        return [_IF_MATCH] if self.method in _CHANGES or 412 in self._refuses() else []

    def _refuses(self) -> Sequence[int]:
        return self._api_view.refuses.get(self.method.lower(), ())

    def _headers(self, status: int, named: set[str]) -> dict[str, Any]:
        headers: dict[str, Any] = {}
        if status in {201, 202} or "Prefer" in named:
            headers["Location"] = _header("The URL of the created resource.", _URL)
        if status == 200 and "Prefer" in named:
            headers["Preference-Applied"] = _header("`wait=N` if the request waited.")
        if status == 201 or (
            status == 200 and named & {"If-None-Match", "If-Match"} and self.method != "DELETE"
        ):
            headers["ETag"] = _ETAG
        return headers

    def _errors(self, named: set[str], *, has_body: bool) -> list[int]:
        found = {400, 401, 406, 429, 500, 503, *self._refuses()}
        if "{" in self.path:
            found.add(404)
        if self._api_view.scopes:  # a token without the scope, or with a limit
            found.add(403)
        if self.method != "GET":
            found.add(413)
        if has_body:
            found |= {408, 415}
        if self.method in _CHANGES:
            found.add(412)
        if named & _ONCE:
            found.add(422)
        return sorted(found)


def _add_error(responses: dict[str, Any], status: int) -> None:
    answer = responses.setdefault(str(status), {"description": f"{status_phrase(status)}.", "content": {}})
    answer["content"][PROBLEM] = {"schema": {"$ref": f"#/components/schemas/Problem{status}"}}
    if headers := _ERROR_HEADERS.get(status):
        answer["headers"] = headers


@cache
def answer_of(operation_id: str) -> dict[str, Any] | None:
    """The recorded response of an operation, `{status, body}`; None if there is none."""
    path = FOLDER / f"{operation_id}.json"
    return cast("dict[str, Any]", json.loads(path.read_text())) if path.exists() else None


def _add_examples(operation: dict[str, Any]) -> None:
    """Add the examples of an operation in place: its path parameters and its response."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] in PATH_PARAMETERS:
            parameter["example"] = PATH_PARAMETERS[parameter["name"]]
    answer = answer_of(operation["operationId"])
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            if kind == STREAM:
                content["example"] = _EVENT
            elif answer is not None and status == str(answer["status"]):
                content["example"] = answer["body"]


class ClosedInput(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Input that rejects unknown fields: `additionalProperties: false`."""

    target_class = "interfaces.http.fields.Input"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> Any:
        """The schema of the input, with its example."""
        describe: Any = auto_schema._map_serializer  # noqa: SLF001 - as the docs of extensions say
        shape = describe(self.target, direction, bypass_extensions=True) | {"additionalProperties": False}
        return shape | ({"example": dict(self.target.example)} if self.target.example else {})


class HookScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Hooks accept their token, or messages signed with it."""

    target_class = "interfaces.api.agents.hooks.HookAuthentication"
    name = ["hookToken", "hookSignature"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> Any:  # noqa: ARG002 - the library's signature
        """One of the two is enough; some hooks accept signed messages only."""
        return [{"hookToken": []}, {"hookSignature": []}]

    def get_security_definition(self, auto_schema: AutoSchema) -> Any:  # noqa: ARG002 - the library's signature
        """`Authorization: Bearer rin_…`, or the header `Webhook-Signature`."""
        signature = (
            "`v1,` and the base64 of HMAC-SHA256 of `<Webhook-Id>.<Webhook-Timestamp>.<body>` with the token."
        )
        return [
            {"type": "http", "scheme": "bearer", "description": "The token of a hook."},
            {"type": "apiKey", "in": "header", "name": "Webhook-Signature", "description": signature},
        ]


class TicketScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Event streams accept a ticket in their address."""

    target_class = "interfaces.http.auth.TicketAuthentication"
    name = "streamTicket"

    def get_security_definition(self, auto_schema: AutoSchema) -> Any:  # noqa: ARG002 - the library's signature
        """`?ticket=…`."""
        text = "A ticket of `/api/stream-tickets/`, which opens one event stream once."
        return {"type": "apiKey", "in": "query", "name": "ticket", "description": text}


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add what all operations share: errors, tags, links of pages, and headers."""
    operations = [each for methods in result["paths"].values() for each in methods.values()]
    components, schemas = result["components"], result["components"]["schemas"]
    tags = sorted({tag for each in operations for tag in each["tags"]})
    result["tags"] = [{"name": tag, "description": TAGS.get(tag, tag)} for tag in tags]
    for name, schema in schemas.items():
        if name.startswith("Paginated"):  # DRF's are in OpenAPI 3.0, with addresses of another server
            link = {"type": ["string", "null"], "format": "uri", "description": "The address of that page."}
            schema["properties"] |= {"next": link, "previous": link}
    schemas["Problem"] = _PROBLEM
    answered = {status for each in operations for status in each["responses"]}
    schemas.update({f"Problem{each}": _problem_of(each) for each in CODES if str(each) in answered})
    components["headers"] = _EVERYWHERE | _COUNTED
    for operation in operations:
        operation["parameters"].append(_VERSION)
        for status, answer in operation["responses"].items():
            is_counted = status < "400" or status == "429"  # surely; others may be refused before
            named = [*_EVERYWHERE, *(_COUNTED if is_counted else ())]
            more = {name: {"$ref": f"#/components/headers/{name}"} for name in named}
            answer["headers"] = answer.get("headers", {}) | more
    return result


def _problem_of(status: int) -> dict[str, Any]:
    known = {
        "status": {"type": "integer", "enum": [status]},
        "code": {"type": "string", "enum": list(CODES[status])},
    }
    return {"allOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "object", "properties": known}]}
