"""Names and titles: single-line texts that lists, logs and prompts show unchanged."""

from __future__ import annotations

import unicodedata

from sessions_app.exceptions import BadInput

_BREAKING = {"Cc", "Zl", "Zp"}  # control characters, line and paragraph separators


def check_line(name: str, text: str) -> str:
    """Return the text if it is one line without control characters. BadInput `bad_<name>`."""
    if any(unicodedata.category(each) in _BREAKING for each in text):
        raise BadInput(f"the {name} contains a line break or another control character", code=f"bad_{name}")
    return text


def one_line(text: str, length: int) -> str:
    """Return the first `length` characters of a text as one line without control characters."""
    plain = "".join(" " if unicodedata.category(each) in _BREAKING else each for each in text)
    return " ".join(plain.split())[:length].rstrip()


def shortened(text: str, length: int) -> str:
    """Return a text as one line of at most `length` characters; one that is cut ends with “…”."""
    line = one_line(text, length + 1)
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"
