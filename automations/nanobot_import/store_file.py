"""Read nanobot's job store from a file: its list of jobs, or an error that refuses the whole file.

The file is refused when it is not UTF-8 or JSON, repeats a key, or has a value of an impossible type. Each job's
content is checked later (`store_job.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 50_000_000  # bytes
DEEPEST = 60  # levels
_TEXT = (str, int, float)  # numbers are accepted as text, such as chat ids
_NUMBER = (int, float, str)  # and text as numbers
_FLAG = (bool, int, str)
_SHAPE: Mapping[str, Any] = {
    "id": _TEXT,
    "name": _TEXT,
    "enabled": _FLAG,
    "schedule": {"kind": (str,), "atMs": _NUMBER, "everyMs": _NUMBER, "expr": (str,), "tz": (str,)},
    "payload": {
        "kind": (str,),
        "message": _TEXT,
        "deliver": _FLAG,
        "channel": _TEXT,
        "to": _TEXT,
        "channelMeta": dict,
        "sessionKey": _TEXT,
    },
    "state": {"nextRunAtMs": _NUMBER, "lastRunAtMs": _NUMBER},
}


class StoreRefused(Exception):
    """The file is not a valid job store; the message names the place."""

    code = "corrupt_store"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredJob:
    """One job of the file, its known fields in camelCase; `place` is its position, such as `jobs[3]`."""

    place: str
    fields: Mapping[str, Any]

    def get(self, *path: str) -> Any:
        """The value of a field, such as ("schedule", "expr"); None when it is missing or null."""
        found: Any = self.fields
        for name in path:
            found = (found or {}).get(name)
        return found


class _Fault:
    """Replaces an ambiguous or invalid value in the tree, until its place is known for the error text."""

    def __init__(self, text: str) -> None:
        self.text = text


def read_store(content: bytes) -> list[StoredJob]:
    """The jobs of a store: `{"jobs": [...]}` or a list. StoreRefused."""
    if len(content) > LARGEST:
        raise StoreRefused(f"the file is larger than {LARGEST:,} bytes")
    tree = _parsed(_decoded(content))
    if isinstance(tree, dict) and "jobs" not in tree:
        raise StoreRefused("the file has no `jobs`")
    found, place = (tree["jobs"], "jobs") if isinstance(tree, dict) else (tree, "the file")
    if not isinstance(found, list | None):
        raise StoreRefused(f"{place} is {_kind(found)} where a list of jobs is expected")
    return [_job(entry, f"jobs[{number}]") for number, entry in enumerate(found or ())]


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise StoreRefused(f"line {line}, byte {column}: the file is not UTF-8") from None


def _parsed(text: str) -> Any:
    try:
        tree = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_int)
        fault = _fault_in(tree, "", DEEPEST)
    except json.JSONDecodeError as error:
        raise StoreRefused(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise StoreRefused("the file is nested too deeply") from None
    if fault is not None:
        raise StoreRefused(fault)
    return tree


def _object(pairs: list[tuple[str, Any]]) -> Any:
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[key] = _Fault("is repeated") if key in made else value
    return made


def _constant(name: str) -> Any:
    return _Fault(f"is {name}, which is not JSON")


def _int(digits: str) -> Any:
    # Python refuses to read more than 4,300 digits; no field needs 40
    return int(digits) if len(digits) < 40 else _Fault("is a number with too many digits")


def _fault_in(tree: Any, place: str, depth: int) -> str | None:
    """The first fault in the tree with its place; None: there is none. RecursionError below `depth` levels."""
    if depth == 0:
        raise RecursionError
    if isinstance(tree, _Fault):
        return f"{place or 'the file'} {tree.text}"
    inside: list[tuple[str, Any]] = []
    if isinstance(tree, dict):
        inside = [(f"{place}.{_shown(key)}" if place else _shown(key), value) for key, value in tree.items()]
    elif isinstance(tree, list):
        inside = [(f"{place}[{number}]", value) for number, value in enumerate(tree)]
    return next((fault for where, value in inside if (fault := _fault_in(value, where, depth - 1))), None)


def _shown(key: str) -> str:
    """A key as at most 60 printable characters."""
    return ascii(key)[1:-1][:60]


def _job(entry: Any, place: str) -> StoredJob:
    if not isinstance(entry, dict):
        raise StoreRefused(f"{place} is {_kind(entry)} where a job is expected")
    return StoredJob(place=place, fields=_fields(entry, _SHAPE, place))


def _fields(data: dict[str, Any], shape: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The known fields in camelCase, whether spelt in camelCase or snake_case. StoreRefused for a wrong type."""
    found: dict[str, Any] = {}
    for name, wanted in shape.items():
        spelt = name if data.get(name) is not None else _snake(name)
        value, where = data.get(spelt), f"{place}.{spelt}"
        if value is None:
            continue
        if isinstance(wanted, Mapping):
            if not isinstance(value, dict):
                raise StoreRefused(f"{where} is {_kind(value)} where an object is expected")
            found[name] = _fields(value, wanted, where)
        elif not _fits(value, wanted):
            raise StoreRefused(f"{where} is {_kind(value)}, which is not allowed")
        else:
            found[name] = value
    return found


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) and wanted is not _FLAG:
        return False  # true is an int to Python
    return isinstance(value, wanted)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "an object"),
)


def _kind(value: Any) -> str:
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "null")
