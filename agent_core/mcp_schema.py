"""The parameters of a stranger's tool, as far as they are of use: bounded, well-formed, in one order.

What is checked here is what `schema.py` reads and models are sent: an ill-formed one would end every turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent_core.types import JSON

LONGEST = 10_000  # characters of a tool's parameters as JSON
DEEPEST = 20
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}
_OBJECTS = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def readable(parameters: Any) -> JSON | None:
    """The parameters with their keys in order, so that each listing gives the same bytes. None: of no use."""
    try:
        text = json.dumps(parameters, sort_keys=True, allow_nan=False)
        if len(text) > LONGEST:
            return None
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("type") != "object" or any(_faults(found, found, 0)):
            return None
    except (TypeError, ValueError, RecursionError):
        return None
    found.setdefault("properties", {})
    return dict(sorted(found.items()))


def _faults(schema: Any, root: JSON, depth: int) -> Iterator[bool]:
    """True for each thing that is not as JSON schema has it."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > DEEPEST:
        yield True
        return
    yield not _plain(schema, root)
    below = [schema[key] for key in ("items", "additionalProperties", "not") if key in schema]
    for key in _OBJECTS:
        given = schema.get(key, {})
        yield not isinstance(given, dict)
        below += given.values() if isinstance(given, dict) else ()
    for key in _LISTS:
        given = schema.get(key, [])
        yield not isinstance(given, list)
        below += given if isinstance(given, list) else ()
    for each in below:
        yield from _faults(each, root, depth + 1)


def _plain(schema: JSON, root: JSON) -> bool:
    """Whether the keys that hold no schemas are as they should be."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    required = schema.get("required", [])
    return (
        isinstance(kinds, list)
        and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(schema.get("enum", []), list)
        and _leads_somewhere(schema.get("$ref"), root)
    )


def _leads_somewhere(reference: Any, root: JSON) -> bool:
    """A reference stays within the schema: nobody fetches one for a stranger."""
    if reference is None or reference == "#":
        return True
    parts = reference.split("/") if isinstance(reference, str) else []
    return (
        len(parts) == 3
        and parts[0] == "#"
        and parts[1] in ("$defs", "definitions")
        and isinstance(root.get(parts[1]), dict)
        and parts[2] in root[parts[1]]
    )
