"""What people see of a text: letters that are invisible, and texts of which nothing but markup is seen."""

from __future__ import annotations

import html
import re
from typing import Final

# invisible characters that count as printable: fillers, a blank, variation selectors
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U000e0100-\U000e01ef]"
)
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
