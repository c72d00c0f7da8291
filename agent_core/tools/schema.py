"""Checks a tool call before it is made, with errors that the model can act on.

It checks these keywords of JSON schema: type, enum, required, properties, additionalProperties false, items, anyOf. A
tool checks the meaning of its arguments itself. Regular expressions of an MCP server are never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from agent_core.tool_spec import ToolSpec
from agent_core.types import ToolCall, ToolOutcome, ToolResult

WITHHELD = (
    "{name} cannot be used in this turn: the turn answers another system's message. Say in your answer what you"
    " would do; a person can ask for it in a message of their own."
)
MOST_FAULTS = 5  # reported for one call
LONGEST_FAULT = 300  # characters; a fault may contain a key of the call
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
    """Return the failed result of a call that cannot be made, or None if it can.

    The same call and tools always give the same result, on which a resumed turn relies: refusals are not journaled.
    """
    spec = specs.get(call.name)
    if spec is not None and spec.withheld:
        text = WITHHELD.format(name=call.name)
        return ToolResult(id=call.id, name=call.name, output=text, outcome=ToolOutcome.REFUSED)
    if spec is None:
        names = ", ".join(sorted(name for name, each in specs.items() if not each.withheld)) or "none"
        return _failed(
            call, "UnknownTool", f"There is no tool {call.name[:LONGEST_FAULT]!r}. Tools: {names}."
        )
    if call.unparsed is not None:
        return _failed(call, "BadArguments", "The arguments are not a JSON object. Send one.")
    found = islice(_faults(call.arguments, spec.parameters, ""), MOST_FAULTS)
    faults = [fault[:LONGEST_FAULT] for fault in found]
    if faults:
        return _failed(call, "BadArguments", f"Bad arguments: {'; '.join(faults)}.")
    return None


def _failed(call: ToolCall, error_class: str, text: str) -> ToolResult:
    return ToolResult(
        id=call.id, name=call.name, output=text, outcome=ToolOutcome.FAILED, error_class=error_class
    )


def _faults(value: Any, schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    where = path or "the arguments"
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds
    if names is not None and not any(_is_of_type(value, name) for name in names):
        yield f"{where} must be of type {' or '.join(names)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} must be one of {', '.join(map(repr, schema['enum']))}"
    choices = schema.get("anyOf")
    if choices and all(any(_faults(value, choice, path)) for choice in choices):
        yield f"{where} matches none of the allowed schemas"
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


def _is_of_type(value: Any, name: str) -> bool:
    if name not in _TYPES:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])
