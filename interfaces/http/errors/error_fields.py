"""Which field of a request an error concerns, by its code: for the `errors` of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rest_framework.exceptions import APIException

BODY = "body"
_TIMES = ("send_at", "next_run_at", "schedule.at", "schedule")
# fields or headers by code, for codes that do not name their field as `bad_<field>` or `empty_<field>` does: the first
# of them that the request has, else the first
FIELDS: dict[str, tuple[str, ...]] = {
    "bad_channel": ("channel", "address"),
    "bad_cron": ("schedule.expr", "schedule"),
    "bad_document": ("content",),
    "bad_idempotency_key": ("Idempotency-Key",),
    "bad_if_match": ("If-Match",),
    "bad_interval": ("schedule.seconds", "schedule"),
    "bad_message": ("content", "message", "message_text"),
    "bad_run": (BODY,),
    "bad_skip": ("slots", BODY),
    "bad_thread": ("threadId",),
    "bad_time": _TIMES,
    "bad_webhook_id": ("Webhook-Id",),
    "document_too_long": ("content",),
    "empty_message": ("content", "message", "message_text"),
    "empty_name": ("name",),
    "empty_text": ("message_text",),
    "malformed_body": (BODY,),
    "internal_session": ("session",),
    "message_too_long": ("content", "message"),
    "never_fires": ("schedule.expr", "schedule", "next_run_at", "ends_at", "paused_until", "enabled"),
    "past_at": (*_TIMES, "enabled"),
    "past_time": (*_TIMES, "expires_at"),
    "reserved_key": ("key", "channel"),
    "text_too_long": ("message_text",),
    "unknown_timezone": ("schedule.timezone", "timezone", *_TIMES),
    "unsupported_message": ("messages",),
}
# codes of a field if the request has it, else of what it is sent to
IF_SENT = frozenset({"internal_session"})
# codes of what is wrong with the request as a whole, or with what it is sent to
WITHOUT_FIELD = frozenset(
    {"bad_request", "bad_input", "bad_automation", "missing_extra", "needs_person"}
    | {"no_images", "no_workspace", "not_private", "not_editable", "refused", "unsupported_value"}
)


def errors_of(code: str, text: str, data: Any) -> dict[str, list[str]]:
    """`errors` of a refused request with this body: the text by the field that it concerns; empty for no field."""
    if code in WITHOUT_FIELD:
        return {}
    kind, _, name = code.partition("_")
    fields = FIELDS.get(code) or ((name,) if kind in {"bad", "empty"} else ())
    first = "" if code in IF_SENT else next(iter(fields), "")
    found = next((field for field in fields if _has(data, field)), first)
    return {found: [text]} if found else {}


def _has(data: Any, field: str) -> bool:
    for name in field.split("."):
        if not (isinstance(data, Mapping) and name in data):
            return False
        data = data[name]
    return True


def body_of(context: Any) -> Any:
    """The body that the request of an exception handler's context was read as; nothing if it cannot be read."""
    with suppress(APIException, OSError):
        return context["request"].data if context else {}
    return {}
