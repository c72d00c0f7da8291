"""Field types for forms that accept common mistakes of models: JSON in a string, an overlong text, a word in capitals.

Only mistakes with a clear meaning are accepted. Other values are rejected with a reason for the model.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field

from agent_core.llm.protocol import clean_value

LONGEST_LINE: Final = 300  # characters
LONGEST_TEXT: Final = 4000
LONGEST_ANSWER: Final = 20_000
_CUT = "…"

T = TypeVar("T")


def _text(value: Any) -> Any:
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def _cut(longest: int) -> BeforeValidator:
    def cut(value: Any) -> Any:
        text = _text(value)
        too_long = isinstance(text, str) and len(text) > longest
        return text[: longest - len(_CUT)] + _CUT if too_long else text

    return BeforeValidator(cut)


def _whole(value: Any) -> Any:
    """Drop an answer that is too long instead of cutting it. The model is then asked for the answer again."""
    text = _text(value)
    return "" if isinstance(text, str) and len(text) > LONGEST_ANSWER else text


def parsed(value: Any) -> Any:
    """Return the value of a JSON string; other values as they are."""
    if not isinstance(value, str):
        return value
    try:
        return clean_value(json.loads(value))
    except (ValueError, RecursionError):  # not JSON, or a value that cannot be stored
        return value


def _items(value: Any) -> Any:
    """A list. A single object becomes a list of one."""
    read = parsed(value)
    items = [read] if isinstance(read, dict) else read
    return [parsed(item) for item in items] if isinstance(items, list) else items


def _object(value: Any) -> Any:
    read = parsed(value)
    return {} if read in (None, "", []) else read


Line = Annotated[str, _cut(LONGEST_LINE), Field(max_length=LONGEST_LINE)]
Text = Annotated[str, _cut(LONGEST_TEXT), Field(max_length=LONGEST_TEXT)]
Whole = Annotated[str, BeforeValidator(_whole), Field(max_length=LONGEST_ANSWER)]
Object = Annotated[dict[str, Any], BeforeValidator(_object)]
Items = Annotated[tuple[T, ...], BeforeValidator(_items)]
Choice = Annotated[
    T, BeforeValidator(lambda value: value.strip().lower() if isinstance(value, str) else value)
]
