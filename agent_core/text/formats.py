"""Fixed forms of texts: times, phrases of HTTP statuses, characters in one width, and what people see of a text."""

from __future__ import annotations

import html
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


# invisible characters that count as printable: fillers, a blank, variation selectors
_FILLERS: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164"
    "\ufe00-\ufe0f\uffa0\U00016fe4\U000e0100-\U000e01ef"
)
_INVISIBLE: Final = re.compile(f"[{_FILLERS}]")
# the usual ones that do not count as printable; both lists are for the brackets of a regular expression
_FORMATS: Final = (
    "\x01-\x1f\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0001-\U000e007f"
)
BLANKS: Final = f"{_FILLERS}{_FORMATS}"
_TAG: Final = re.compile(r"</?[a-z]+\d?\s*/?>|<!--[^<>]*-->", re.IGNORECASE)  # linear in time
_MARKS: Final = re.compile("[*_`~#>|=-]")  # of Markdown


def is_visible(letter: str) -> bool:
    """Whether a character is seen; a space is."""
    return letter.isprintable() and not _INVISIBLE.match(letter)


def has_visible(text: str) -> bool:
    """Whether people see anything of the text."""
    return any(is_visible(letter) and not letter.isspace() for letter in text)


def says_something(text: str) -> bool:
    """Whether people see anything of the text but markup."""
    return has_visible(_MARKS.sub("", html.unescape(_TAG.sub("", text))))
