"""What every operation of the OpenAPI schema has in common."""

from __future__ import annotations

from typing import Any

from config.errors import PROBLEM

_TEXT = {"type": "string"}
_SHAPE = {
    "type": "object",
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
_REFUSAL = {
    "description": "Refused.",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Say that any operation may be refused, and how that looks."""
    result["components"]["schemas"]["Problem"] = _SHAPE
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["default"] = _REFUSAL
    return result
