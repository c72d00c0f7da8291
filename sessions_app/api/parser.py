"""Reading JSON strictly: what cannot be stored or understood in one way only is refused here."""

from __future__ import annotations

import json
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer


class StrictJSONParser(BaseParser):
    """UTF-8 JSON without doubled keys, NaN, lone surrogates or nesting that no reader survives."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:  # noqa: ARG002
        """The body's value. ParseError."""
        try:
            text = stream.read().decode("utf-8")
            data = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse)
            if "\\u" in text:  # only an escape can spell half of a surrogate pair
                json.dumps(data, ensure_ascii=False).encode("utf-8")
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {_short(error)}.") from None
        return data


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {double[:60]!r} stands twice")
    return data


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number")


def _short(error: ValueError) -> str:
    if isinstance(error, UnicodeError):
        return "it holds characters that are not UTF-8"
    return str(error)[:120]
