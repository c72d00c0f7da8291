"""Makes what a model said fit to be stored: a database takes no NUL, no half character, no NaN."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from agent_core.models import ModelReply
from agent_core.types import ToolCall

_DEEPEST = 50
_LONGEST_UNPARSED = 10_000


def clean_text(text: str) -> str:
    """Return a text without NUL characters and lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def clean_reply(reply: ModelReply) -> ModelReply:
    """Return a reply that can be stored. Arguments that cannot be become ``unparsed``."""
    calls = tuple(_clean_call(call) for call in reply.calls)
    return replace(reply, text=clean_text(reply.text), calls=calls)


def _clean_call(call: ToolCall) -> ToolCall:
    named = replace(call, id=clean_text(call.id), name=clean_text(call.name))
    if call.unparsed is not None:
        return replace(named, unparsed=clean_text(call.unparsed)[:_LONGEST_UNPARSED])
    try:
        return replace(named, arguments=_clean_value(call.arguments, 0))
    except ValueError as error:
        return replace(named, arguments={}, unparsed=f"({error})")


def _clean_value(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN and Infinity are not JSON")
    if isinstance(value, dict):
        return {clean_text(str(key)): _clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean_value(item, depth + 1) for item in value]
    return value


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Parse a call's arguments; None when they are no JSON object. Nothing at all is an empty one."""
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
