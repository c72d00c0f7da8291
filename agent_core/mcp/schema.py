"""Rewrites the parameters of an MCP tool into what every model provider takes, bounded and in a stable order.

A provider refuses the whole request for one schema that it does not take, so one tool would make every turn fail.
The result has an object at the top without alternatives, no references, `items` for every array, names within the
providers' alphabet and only keywords that all providers take. What it loses is checked by the tool's server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationInfo
from typing_extensions import TypedDict  # pydantic cannot read the standard library's before Python 3.12

from agent_core.mcp.server import Unusable, with_digest
from agent_core.types import JSON

LONGEST: Final = 10_000  # characters of a tool's parameters as JSON
LONGEST_GIVEN: Final = 50_000  # characters of the server's own schema
DEEPEST: Final = 40  # levels of JSON
# schemas that a rewriting looks at, with the same one each time that it is referred to
_MOST_NODES: Final = 2_000
_FOLLOWED: Final = (6, 3, 1, 0)  # references in a row that are followed: fewer if the result is too long
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME: Final = 64
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


class _TooLong(Exception):
    """The rewritten parameters are too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """Rewritten parameters. `originals`: the server's names of properties, by the names that models are given."""

    schema: JSON
    originals: Mapping[str, str] = field(default_factory=dict)

    def restore(self, arguments: JSON) -> Any:
        """Return arguments with the server's own names, where the schema has these properties."""
        return self._restored(arguments, [self.schema]) if self.originals else arguments

    def _restored(self, value: Any, schemas: list[JSON]) -> Any:
        """A value for which one of these schemas holds. What none of them has keeps its names."""
        known = [each for schema in schemas for each in _alternatives(schema)]
        if isinstance(value, list):
            items = [each["items"] for each in known if "items" in each]
            return [self._restored(item, items) for item in value]
        if not isinstance(value, dict):
            return value
        more = [each["additionalProperties"] for each in known if each.get("additionalProperties")]
        restored = {}
        for name, item in value.items():
            own = [each["properties"][name] for each in known if name in each.get("properties", ())]
            restored[self.originals.get(name, name) if own else name] = self._restored(item, own or more)
        return restored


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
        "items": "bool | _Schema | list[bool | _Schema]",
        "additionalProperties": "bool | _Schema",
        "properties": "dict[str, bool | _Schema]",
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


def usable_parameters(given: Any) -> Parameters:
    """Return the parameters as models get them, the same bytes for the same schema. Raises Unusable."""
    try:
        text = json.dumps(given, sort_keys=True, allow_nan=False)
        if len(text) > LONGEST_GIVEN:
            raise Unusable(f"its parameters have more than {LONGEST_GIVEN:,} characters")
        root = json.loads(text)
        if not isinstance(root, dict) or root.get("type") != "object":
            raise Unusable("its inputSchema is not a JSON schema of type object")
        if _depth(root) > DEEPEST:
            raise Unusable(f"its parameters have more than {DEEPEST} levels")
        _SCHEMA.validate_json(text, strict=True, context=root)
        return _rewritten(root, text)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Unusable("its inputSchema is not a well-formed JSON schema") from None


def _rewritten(root: JSON, text: str) -> Parameters:
    for followed in _FOLLOWED:
        rewriter = _Rewriter(root=root, text=text)
        try:
            schema = rewriter.top(followed)
        except _TooLong:
            continue
        if len(json.dumps(schema, ensure_ascii=False)) <= LONGEST:
            originals = {safe: name for name, safe in sorted(rewriter.names.items()) if safe != name}
            return Parameters(schema=schema, originals=originals)
    raise Unusable(f"its parameters have more than {LONGEST:,} characters")


def _depth(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, below), default=0)


@dataclass(kw_only=True, slots=True)
class _Rewriter:
    """Rewrites a schema. `names`: new names of properties, by the server's. `followed`: how many references may still
    be followed.
    """

    root: JSON
    text: str
    names: dict[str, str] = field(default_factory=dict)
    _nodes: int = 0

    def top(self, followed: int) -> JSON:
        """The root: an object whose alternatives are merged, because providers take none there."""
        whole, followed = self._whole(self.root, followed)
        branches = [self._whole(each, followed)[0] for each in whole.pop("anyOf", ())]
        schemas = [self._object(each, followed) for each in [whole, *branches]]
        properties: JSON = {}
        for schema in schemas:
            for name, each in schema.get("properties", {}).items():
                known = properties.setdefault(name, each)
                if each not in (known, *known.get("anyOf", ())):
                    properties[name] = {
                        "anyOf": [*(known["anyOf"] if known.keys() == {"anyOf"} else [known]), each]
                    }
        first, *groups = ([*schema.get("required", ())] for schema in schemas)
        shared = [name for name in (groups[0] if groups else ()) if all(name in group for group in groups)]
        found: JSON = {"type": "object", "properties": dict(sorted(properties.items()))}
        if required := sorted({*first, *shared}):
            found["required"] = required
        if schemas[0].get("additionalProperties") is False and not groups:
            found["additionalProperties"] = False
        ways = dict.fromkeys(", ".join(group) for group in groups if group)
        said = [whole.get("description"), f"Give one of these: {'; '.join(ways)}." if len(ways) > 1 else ""]
        if text := " ".join(each for each in said if isinstance(each, str) and each):
            found["description"] = text
        return dict(sorted(found.items()))

    def schema(self, given: Any, followed: int) -> JSON:
        """A schema below the root."""
        given, followed = self._whole(given, followed)
        kinds = _kinds(given)
        found = _plain(given)
        if kinds:
            found["type"] = kinds[0] if len(kinds) == 1 else kinds
        branches = [self.schema(each, followed) for each in given.get("anyOf", ()) if each is not False]
        if branches and {} not in branches:
            found["anyOf"] = branches
        if "array" in kinds:
            found["items"] = self._items(given, followed)
        if "object" in kinds:
            found |= self._object(given, followed)
        return dict(sorted(found.items()))

    def _items(self, given: JSON, followed: int) -> JSON:
        items = given.get("items")
        several = items if isinstance(items, list) else given.get("prefixItems", ())
        if not several:
            return self.schema(items, followed)
        branches = [self.schema(each, followed) for each in several]
        return branches[0] if len(branches) == 1 else {} if {} in branches else {"anyOf": branches}

    def _object(self, given: JSON, followed: int) -> JSON:
        properties = {
            self._name(name): self.schema(each, followed)
            for name, each in sorted(given.get("properties", {}).items())
            if each is not False
        }
        required = sorted({self._name(name) for name in given.get("required", ())})
        properties |= {name: {} for name in required if name not in properties}
        found: JSON = {"properties": properties} if properties else {}
        if required:
            found["required"] = required
        more = given.get("additionalProperties")
        if more is False or isinstance(more, dict):
            found["additionalProperties"] = more and self.schema(more, followed)
        return found

    def _name(self, name: str) -> str:
        """The name that models are given. Two properties of a tool never share one."""
        if name not in self.names:
            safe = _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "_"
            if safe != name and (safe in self.names.values() or f'"{safe}"' in self.text):
                safe = with_digest(safe, name, _LONGEST_NAME)
            self.names[name] = safe
        return self.names[name]

    def _whole(self, given: Any, followed: int) -> tuple[JSON, int]:
        """A schema with what it refers to and its `allOf` merged into it; and how many more references to follow."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooLong
        if not isinstance(given, dict):
            return {}, followed
        whole = dict(given)
        while reference := whole.pop("$ref", None):
            whole, followed = self._target(reference, followed > 0) | whole, followed - 1
        for each in whole.pop("allOf", ()):
            part, followed = self._whole(each, followed)
            both = {
                "properties": part.get("properties", {}) | whole.get("properties", {}),
                "required": [*whole.get("required", ()), *part.get("required", ())],
            }
            whole = part | whole | {name: value for name, value in both.items() if value}
        if "oneOf" in whole:
            whole.setdefault("anyOf", whole.pop("oneOf"))
        return whole, followed

    def _target(self, reference: str, whole: bool) -> JSON:
        """The schema that a reference points to, or only its type and description."""
        target: Any = self.root
        for part in reference.split("/")[1:]:
            target = target[part]
        if not isinstance(target, dict):
            return {}
        return target if whole else {key: target[key] for key in ("type", "description") if key in target}


def _alternatives(schema: JSON) -> Iterator[JSON]:
    """A rewritten schema and those of its `anyOf`."""
    yield schema
    for each in schema.get("anyOf", ()):
        yield from _alternatives(each)


def _kinds(given: JSON) -> list[str]:
    """The types of a schema; without a type, the one that its keywords or values are for."""
    kinds = given.get("type") or ()
    if kinds:
        return [kinds] if isinstance(kinds, str) else list(dict.fromkeys(kinds))
    if given.get("properties"):
        return ["object"]
    if given.get("items") or given.get("prefixItems"):
        return ["array"]
    values = given.get("enum") or [given.get("const")]
    return ["string"] if all(isinstance(value, str) for value in values) else []


def _description(given: JSON) -> str:
    """The description. `pattern` and `format` are told in words: some providers refuse patterns and formats."""
    parts = [given.get("description") or given.get("title")]
    parts += [
        f"({name}: {given[name]})" for name in ("format", "pattern") if isinstance(given.get(name), str)
    ]
    return " ".join(each for each in parts if isinstance(each, str) and each)


def _plain(given: JSON) -> JSON:
    """The keywords that stay as they are, of those without schemas."""
    found: JSON = {name: given[name] for name in _NUMBERS if _is_number(given.get(name))}
    found |= {name: given[name] for name in _COUNTS if type(given.get(name)) is int}
    if given.get("default") is not None:
        found["default"] = given["default"]
    if text := _description(given):
        found["description"] = text
    if values := given.get("enum") or ([given["const"]] if "const" in given else None):
        found["enum"] = values
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
