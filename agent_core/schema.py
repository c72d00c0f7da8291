"""Checks a tool call before it is made, in words that the model can act on.

The check of arguments covers what tools use of JSON schema: type, enum, required, properties,
additionalProperties false, items, anyOf. A tool checks the meaning of its arguments itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_core.types import ToolCall, ToolOutcome, ToolResult, ToolSpec

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def refusal(call: ToolCall, specs: Mapping[str, ToolSpec]) -> ToolResult | None:
    """Return the failed result of a call that cannot be made, or None when it can.

    The same call and tools always give the same answer: a resumed turn relies on it, because
    refusals are not journaled.
    """
    spec = specs.get(call.name)
    if spec is None:
        names = ", ".join(sorted(specs)) or "none"
        return _failed(call, "UnknownTool", f"There is no tool {call.name!r}. Tools: {names}.")
    if call.unparsed is not None:
        return _failed(call, "BadArguments", "The arguments are not a JSON object. Send one.")
    faults = list(_faults(call.arguments, spec.parameters, ""))
    if faults:
        return _failed(call, "BadArguments", f"Bad arguments: {'; '.join(faults[:5])}.")
    return None


def _failed(call: ToolCall, error_class: str, text: str) -> ToolResult:
    return ToolResult(
        id=call.id,
        name=call.name,
        output=text,
        outcome=ToolOutcome.FAILED,
        error_class=error_class,
    )


def _faults(value: Any, schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    where = path or "the arguments"
    kinds = schema.get("type")
    if kinds is not None and not _is_of(value, kinds):
        yield f"{where} must be of type {kinds if isinstance(kinds, str) else ' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} must be one of {', '.join(map(repr, schema['enum']))}"
    choices = schema.get("anyOf")
    if choices and all(any(_faults(value, choice, path)) for choice in choices):
        yield f"{where} has none of the allowed forms"
    if isinstance(value, dict):
        yield from _object_faults(value, schema, path)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults(item, schema.get("items"), f"{path}[{number}]")


def _object_faults(value: dict[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{prefix}{name} is required"
    properties = schema.get("properties", {})
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], f"{prefix}{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{prefix}{name} is not known"


def _is_of(value: Any, kinds: str | list[str]) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds
    return any(_is_one(value, name) for name in names)


def _is_one(value: Any, name: str) -> bool:
    if name not in _TYPES:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])
