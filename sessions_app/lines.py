"""Names and titles: texts of one line, which lists, logs and prompts show as they are."""

from __future__ import annotations

import unicodedata

from sessions_app.exceptions import BadInput

_BREAKING = {"Cc", "Zl", "Zp"}  # control characters, line and paragraph separators


def check_line(name: str, text: str) -> str:
    """The text, if it is one line without control characters. BadInput `bad_<name>`."""
    if any(unicodedata.category(each) in _BREAKING for each in text):
        raise BadInput(f"the {name} holds a line break or another control character", code=f"bad_{name}")
    return text


def one_line(text: str, length: int) -> str:
    """The first `length` characters of a text as one line without control characters."""
    plain = "".join(" " if unicodedata.category(each) in _BREAKING else each for each in text)
    return " ".join(plain.split())[:length].rstrip()
