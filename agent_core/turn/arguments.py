"""Reads the arguments of tool calls as models write them, before a call is stored, asked about or made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agent_core.llm.protocol import clean_value
from agent_core.tool_spec import ToolSpec
from agent_core.tools.schema import Steps, TooLarge, fits, is_of_type, kinds_of
from agent_core.types import ToolCall

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
    """What a text says as JSON, also in Python's spelling; the text itself if it says nothing."""
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
