"""Reads the arguments of tool calls as models write them, and checks each call with errors that the model can act on.

It reads these keywords of JSON schema: type, enum, required, properties, additionalProperties false, items, anyOf. A
tool checks the meaning of its arguments itself. Regular expressions of an MCP server are never run. A check ends after
MOST_STEPS, because both the schema and the arguments may be a stranger's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from agent_core.text.json_values import clean_value
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
    """Whether a value matches the schema. Raises TooLarge."""
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


_PYTHON: Final = {"true": "true", "false": "false", "none": "null"}  # words of JSON by those of Python
_NOTHING: Final = (None, "", "null", "None")  # how an optional parameter is left open


def fit_call(call: ToolCall, specs: Mapping[str, ToolSpec]) -> ToolCall:
    """Return the call with its arguments as its tool's schema means them (see `fit_arguments`)."""
    spec = specs.get(call.name)
    if spec is None or call.unparsed is not None:
        return call
    return replace(call, arguments=fit_arguments(call.arguments, spec))


def fit_arguments(arguments: dict[str, Any], spec: ToolSpec) -> dict[str, Any]:
    """Return the arguments as the schema means them, where there is one way to read them; else as they are.

    An optional parameter that is null, and must not be, is left out. Numbers, booleans, arrays and objects that were
    written as text are read, and a whole number becomes text where only text fits.
    """
    try:
        fitted: dict[str, Any] = _fitted(arguments, spec.parameters, Steps())
    except TooLarge:
        return arguments
    return fitted


def _fitted(value: Any, schema: Any, steps: Steps) -> Any:
    if not isinstance(schema, Mapping):
        return value
    kinds = kinds_of(schema)
    steps.take(1 + len(kinds))
    if kinds and not any(is_of_type(value, kind) for kind in kinds):
        value = _read_as(value, kinds, steps)
    elif isinstance(value, float) and "integer" in kinds and "number" not in kinds:
        value = int(value)
    elif isinstance(value, str) and not kinds and "enum" in schema:
        value = _read_choice(value, schema["enum"], steps)
    if branches := schema.get("anyOf"):
        value = _fitted_branch(value, branches, steps)
    if isinstance(value, dict):
        return _fitted_object(value, schema, steps)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_fitted(item, schema["items"], steps) for item in value]
    return value


def _read_as(value: Any, kinds: Sequence[str], steps: Steps) -> Any:
    """The value as one of these types, none of which it has; the value itself if it cannot be read so."""
    if isinstance(value, int) and not isinstance(value, bool) and "string" in kinds:
        return str(value)
    read = _read_json(value, steps) if isinstance(value, str) else value
    if "integer" in kinds and isinstance(read, float) and read.is_integer():
        read = int(read)
    return read if any(is_of_type(read, kind) for kind in kinds) else value


def _read_choice(value: str, choices: Sequence[Any], steps: Steps) -> Any:
    """The value as one of these choices, which have no type; the value itself if it is one, or cannot be read so."""
    steps.take(2 * len(choices))
    if value in choices:
        return value
    read = _read_json(value, steps)
    return next((each for each in choices if type(each) is type(read) and each == read), value)


def _read_json(text: str, steps: Steps) -> Any:
    """The value of a text that is JSON, also in Python's spelling; the text itself if it is neither."""
    steps.take(len(text) // 10)
    said = text.strip()
    try:
        return clean_value(json.loads(_PYTHON.get(said.lower(), said)))
    except (ValueError, RecursionError):
        return text


def _fitted_branch(value: Any, branches: Sequence[Any], steps: Steps) -> Any:
    """The value as the first branch that it fits, else as the only reading that fits a branch."""
    for branch in branches:
        if fits(value, branch, steps):
            return _fitted(value, branch, steps)
    readings = [read for branch in branches if fits(read := _fitted(value, branch, steps), branch, steps)]
    return readings[0] if len({json.dumps(read, sort_keys=True) for read in readings}) == 1 else value


def _fitted_object(value: dict[str, Any], schema: Mapping[str, Any], steps: Steps) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    steps.take(len(value) * (1 + len(required)))
    found = {}
    for name, given in value.items():
        item = _fitted(given, properties.get(name), steps)
        is_optional = name in properties and name not in required
        if not is_optional or item not in _NOTHING or fits(item, properties[name], steps):
            found[name] = item
    return found
