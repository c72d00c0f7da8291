"""Checks a tool call before it is made, with errors that the model can act on.

It reads these keywords of JSON schema: type, enum, required, properties, additionalProperties false, items, anyOf. A
tool checks the meaning of its arguments itself. Regular expressions of an MCP server are never run. A check ends after
MOST_STEPS, because both the schema and the arguments may be a stranger's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from agent_core.tool_spec import ToolSpec
from agent_core.types import ToolCall, ToolOutcome, ToolResult

WITHHELD = (
    "{name} cannot be used in this turn: the turn answers another system's message. Say in your answer what you"
    " would do; a person can ask for it in a message of their own."
)
AGAIN = "You sent the same arguments before. The parameters of {name} as a JSON schema: {schema}"
BAD_ARGUMENTS: Final = "BadArguments"  # the error class of a call refused for its arguments
MOST_STEPS = 300_000  # of one check; a step looks at one value or one word of the schema
MOST_FAULTS = 5  # reported for one call
LONGEST_FAULT = 300  # characters; a fault may contain a key of the call
LONGEST_SCHEMA = 3_000  # characters of a schema that a refusal shows
_MOST_CHOICES = 20  # values of an enum that a fault names
_LONGEST_CHOICE = 60  # characters of one of them
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class TooLarge(Exception):
    """The check would take too many steps."""


@dataclass(slots=True)
class Steps:
    """Counts the steps of one check."""

    left: int = MOST_STEPS

    def take(self, count: int) -> None:
        """Count some steps. Raises TooLarge."""
        self.left -= count
        if self.left < 0:
            raise TooLarge


def refusal(call: ToolCall, specs: Mapping[str, ToolSpec], *, again: bool = False) -> ToolResult | None:
    """Return the failed result of a call that cannot be made, or None if it can.

    `again`: the turn has made this call before, and it was refused for its arguments. The same call, tools and `again`
    always give the same result, on which a resumed turn relies: refusals are not journaled.
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
    fault = _fault(call, spec)
    if fault is None:
        return None
    more = f" {AGAIN.format(name=spec.name, schema=_short_schema(spec))}" if again else ""
    return _failed(call, BAD_ARGUMENTS, fault + more)


def _failed(call: ToolCall, error_class: str, text: str) -> ToolResult:
    return ToolResult(
        id=call.id, name=call.name, output=text, outcome=ToolOutcome.FAILED, error_class=error_class
    )


def _fault(call: ToolCall, spec: ToolSpec) -> str | None:
    if call.unparsed is not None:
        return "The arguments are not a JSON object. Send one."
    try:
        found = [*islice(_faults(call.arguments, spec.parameters, "", Steps()), MOST_FAULTS)]
    except TooLarge:
        return f"The arguments are too large to be checked for {call.name}. Make several calls with less in each."
    return f"Bad arguments: {'; '.join(fault[:LONGEST_FAULT] for fault in found)}." if found else None


def _short_schema(spec: ToolSpec) -> str:
    text = json.dumps(spec.parameters, ensure_ascii=False)
    return text if len(text) <= LONGEST_SCHEMA else f"{text[:LONGEST_SCHEMA]} (cut)"


def kinds_of(schema: Mapping[str, Any]) -> Sequence[str]:
    """The types that a schema allows; empty: any."""
    kinds = schema.get("type") or ()
    return [kinds] if isinstance(kinds, str) else kinds


def _faults(value: Any, schema: Any, path: str, steps: Steps) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    where = path or "the arguments"
    kinds, choices, branches = kinds_of(schema), schema.get("enum"), schema.get("anyOf")
    steps.take(1 + len(kinds) + len(choices or ()))
    if kinds and not any(is_of_type(value, kind) for kind in kinds):
        yield f"{where} must be of type {' or '.join(kinds)}"
        return
    if choices is not None and value not in choices:
        yield f"{where} must be one of {_listed(choices)}"
    if branches and all(any(_faults(value, branch, path, steps)) for branch in branches):
        yield f"{where} matches none of the allowed schemas"
    if isinstance(value, dict):
        yield from _object_faults(value, schema, path, steps)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, item in enumerate(value):
            yield from _faults(item, schema["items"], f"{path}[{number}]", steps)


def _listed(choices: Sequence[Any]) -> str:
    """The first values of an enum, each cut."""
    shown = (each[:_LONGEST_CHOICE] if isinstance(each, str) else each for each in choices[:_MOST_CHOICES])
    more = f" and {len(choices) - _MOST_CHOICES} more" if len(choices) > _MOST_CHOICES else ""
    return ", ".join(map(repr, shown)) + more


def _object_faults(
    value: dict[str, Any], schema: Mapping[str, Any], path: str, steps: Steps
) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    required = schema.get("required", ())
    steps.take(len(required) + len(value))
    for name in required:
        if name not in value:
            yield f"{prefix}{name} is required"
    properties = schema.get("properties", {})
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], f"{prefix}{name}", steps)
        elif schema.get("additionalProperties") is False:
            yield f"{prefix}{name} is not known"


def fits(value: Any, schema: Any, steps: Steps) -> bool:
    """Whether a value has no fault. Raises TooLarge."""
    return not any(_faults(value, schema, "", steps))


def is_of_type(value: Any, name: str) -> bool:
    """Whether a value has a type of JSON schema; an unknown type is any."""
    if name not in _TYPES:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])
