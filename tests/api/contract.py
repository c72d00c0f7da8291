"""What clients rely on within one version of the API, as lines of text made from the schema.

`python -m tests.api.contract FILE` writes them for a schema in JSON. The stored lines are those of the last release:
what was added since is free to change.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STORED = Path(__file__).parents[1] / "data/api_version_1.txt"


def promises(schema: Any) -> set[str]:
    """Addresses with their methods, parameters and successes; fields with their types; the values of each word."""
    return {*_operations(schema), *_fields(schema)}


def demands(schema: Any) -> set[str]:
    """The fields that a request must have."""
    return {
        f"{name} requires {field}"
        for name, shape in schema["components"]["schemas"].items()
        if shape.get("additionalProperties") is False
        for field in shape.get("required", ())
    }


def _operations(schema: Any) -> Iterator[str]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            here = f"{method.upper()} {path}"
            yield here
            yield from (f"{here} takes {each['in']} {each['name']}" for each in operation["parameters"])
            yield from (f"{here} answers {status}" for status in operation["responses"] if status < "300")


def _fields(schema: Any) -> Iterator[str]:
    for name, shape in schema["components"]["schemas"].items():
        words = () if name.startswith("Problem") else shape.get("enum", ())
        yield from (f"{name} may be {value}" for value in words)
        for field, kind in shape.get("properties", {}).items():
            yield f"{name}.{field}: {_kind(kind)}"


def _kind(kind: Any) -> str:
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    for combined in ("allOf", "oneOf", "anyOf"):
        if combined in kind:
            return " | ".join(sorted(_kind(each) for each in kind[combined]))
    if kind.get("type") == "array":  # one that may be null is "array or null"
        return f"[{_kind(kind['items'])}]"
    types = kind.get("type", "any")
    named = types if isinstance(types, str) else " or ".join(types)
    return f"{named} {kind.get('format', '')}".strip()


def lines(schema: Any) -> list[str]:
    """Everything, in order."""
    return sorted(promises(schema) | demands(schema))


if __name__ == "__main__":
    STORED.write_text("".join(f"{line}\n" for line in lines(json.loads(Path(sys.argv[1]).read_text()))))
