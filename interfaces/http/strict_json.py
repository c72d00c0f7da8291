"""Strict and bounded parsing of JSON: what cannot be stored or is ambiguous is rejected."""

from __future__ import annotations

import json
import math
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer

from agent_core.text.json_values import values_at_most
from sessions_app.exceptions import TooLarge

MOST_VALUES = 10_000  # in one document: numbers, texts, lists, objects … at all levels
DEEPEST = 32  # levels
LONGEST_NUMBER = 100  # characters
LONGEST_SHOWN = 60  # characters of a key in an error text


class TooManyValues(ValueError):
    """The document has more than MOST_VALUES values."""


def read_json(text: str) -> Any:
    """The value of a JSON text. TooManyValues; ValueError, whose text can follow "this is not JSON: ".

    The values are counted first: building millions of them costs a hundred times the memory of their text.
    """
    if values_at_most(text) > MOST_VALUES:
        raise TooManyValues(f"there are more than {MOST_VALUES:,} values")
    try:
        data = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_reject_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deeper(data, DEEPEST):
        raise ValueError(_TOO_DEEP)
    if "\\u" in text:  # only an escape can spell half of a surrogate pair
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair") from None
    return data


_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"


def _is_deeper(data: Any, most: int) -> bool:
    level = [data]
    for _ in range(most + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in pairs:
        if name in data:
            raise ValueError(f"the key {name[:LONGEST_SHOWN]!r} occurs twice")
        data[name] = value
    return data


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number")


def _int(digits: str) -> int:
    return int(_bounded(digits))


def _float(digits: str) -> float:
    number = float(_bounded(digits))
    if not math.isfinite(number):
        raise ValueError(f"the number {digits} is too large")
    return number


def _bounded(digits: str) -> str:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has more than {LONGEST_NUMBER} characters")
    return digits


class StrictJSONParser(BaseParser):
    """UTF-8 JSON without duplicate keys, NaN or lone surrogates, of bounded depth and number of values."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:  # noqa: ARG002
        """The value of the body. ParseError, TooLarge."""
        try:
            return read_json(stream.read().decode("utf-8"))
        except TooManyValues as error:
            raise TooLarge(f"The body is too large: {error}.") from None
        except UnicodeDecodeError:
            raise ParseError("The body is not JSON: it is not encoded in UTF-8.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from None
