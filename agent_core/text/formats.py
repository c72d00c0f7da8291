"""Fixed forms of texts: times, reason phrases of HTTP statuses, and characters in one width."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with `Z`, as the answers of the API have it."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


def indented(text: str) -> str:
    """The lines of a text, indented after the first, so that none looks like a new item of a list."""
    return "\n    ".join(text.strip().splitlines())


# Python has these words of RFC 9110 from 3.13 on, and older ones before
_RFC_9110: Final = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}


def status_phrase(status: int) -> str:
    """The phrase of a status, such as `Not Found` of 404. ValueError for a status that Python does not know."""
    return _RFC_9110.get(status) or HTTPStatus(status).phrase


_PIECE: Final = 200  # characters
_PIECES: Final = re.compile(rf".{{1,{_PIECE}}}(?:\s|\Z)|.{{1,{_PIECE}}}", re.DOTALL)


def one_width(text: str) -> str:
    """Return the text with wide characters replaced by their usual forms (NFKC).

    It is done in pieces that end at a space where there is one: Python sorts the marks above and below a letter, in
    time that grows with the square of their number: 100,000 marks take eight seconds, in which no other thread of the
    process runs.
    """
    if text.isascii():
        return text
    return "".join(unicodedata.normalize("NFKC", piece) for piece in _PIECES.findall(text))
