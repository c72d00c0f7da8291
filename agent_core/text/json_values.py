"""JSON values in texts of models and strangers: counted, found, and cleaned so that they can be stored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any


def values_at_most(text: str) -> int:
    """The most values that a JSON text can have: each but the first follows a comma or an opening bracket.

    For a text that is not JSON it may be any number.
    """
    without_strings = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    return 1 + sum(without_strings.count(sign) for sign in ",[{")


_DEEPEST = 50


def clean_text(text: str) -> str:
    """Return a text without NUL characters and lone surrogates, which PostgreSQL cannot store. Pairs are joined."""
    if text.isascii() and "\x00" not in text:
        return text
    joined = text.replace("\x00", "").encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return joined.encode("utf-8", "replace").decode("utf-8")


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can store the text as it is: it has no NUL character and no surrogate."""
    return clean_text(text) == text


def split_half(text: str) -> tuple[str, str]:
    """Split off a first half of a surrogate pair at the end of a piece: the next piece begins with the other half."""
    return (text[:-1], text[-1]) if "\ud800" <= text[-1:] <= "\udbff" else (text, "")


def clean_value(value: Any, depth: int = 0) -> Any:
    """Return a JSON value that can be stored. Raises ValueError for NaN, infinity and deep nesting."""
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} levels deep")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN and Infinity are not JSON")
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, depth + 1) for item in value]
    return value


_MOST_OBJECTS = 50


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects anywhere in a text, at most 50."""
    decoder = json.JSONDecoder()
    for number, brace in enumerate(re.finditer(r"\{", text)):
        if number == _MOST_OBJECTS:
            return
        try:
            found, _end = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        yield found
