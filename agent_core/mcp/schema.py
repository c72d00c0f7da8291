"""Validates the parameters of an MCP tool: bounded, well-formed, and with their keys in a stable order.

Models and `tools/schema.py` are given these parameters. One ill-formed schema would make every turn fail.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationInfo
from typing_extensions import TypedDict  # pydantic cannot read the standard library's before Python 3.12

from agent_core.types import JSON

LONGEST = 10_000  # characters of a tool's parameters as JSON
DEEPEST = 40  # levels of JSON


def _is_inside_the_root(reference: str | None, info: ValidationInfo) -> str | None:
    """A reference must not leave the root schema, which is the context: the server never fetches one."""
    if reference is not None and reference != "#":
        start, group, name = reference.split("/")
        root = info.context or {}
        if start != "#" or group not in ("$defs", "definitions") or name not in root[group]:
            raise ValueError("the $ref points to nothing")
    return reference


_Type = Literal["string", "integer", "number", "boolean", "array", "object", "null"]
_Schema = TypedDict(
    "_Schema",
    {
        "type": _Type | list[_Type],
        "required": list[str],
        "enum": list[Any],
        "$ref": Annotated[str | None, AfterValidator(_is_inside_the_root)],
        "items": "bool | _Schema",
        "additionalProperties": "bool | _Schema",
        "not": "bool | _Schema",
        "properties": "dict[str, bool | _Schema]",
        "patternProperties": "dict[str, bool | _Schema]",
        "$defs": "dict[str, bool | _Schema]",
        "definitions": "dict[str, bool | _Schema]",
        "anyOf": "list[bool | _Schema]",
        "oneOf": "list[bool | _Schema]",
        "allOf": "list[bool | _Schema]",
        "prefixItems": "list[bool | _Schema]",
    },
    total=False,
)
_SCHEMA = TypeAdapter(_Schema)


def readable_schema(parameters: Any) -> JSON | None:
    """Return the parameters with sorted keys, so that each listing gives the same bytes; None if they are unusable."""
    try:
        text = json.dumps(parameters, sort_keys=True, allow_nan=False)
        if len(text) > LONGEST:
            return None
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("type") != "object" or _depth(found) > DEEPEST:
            return None
        _SCHEMA.validate_json(text, strict=True, context=found)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    found.setdefault("properties", {})
    return dict(sorted(found.items()))


def _depth(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, below), default=0)
