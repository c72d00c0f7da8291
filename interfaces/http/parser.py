"""Strict parsing of JSON bodies: what cannot be stored or is ambiguous is rejected."""

from __future__ import annotations

from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer

from interfaces.http.strict_json import TooManyValues, read_json
from sessions_app.exceptions import TooLarge


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
