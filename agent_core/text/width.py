"""Brings the wide, doubled and joined characters of a text into one form (Unicode's NFKC)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_PIECE: Final = 200  # characters
_PIECES: Final = re.compile(rf".{{1,{_PIECE}}}(?:\s|\Z)|.{{1,{_PIECE}}}", re.DOTALL)


def one_width(text: str) -> str:
    """Return the text in that form, in pieces that end at a space where there is one.

    Python sorts the marks above and below a letter, in time that grows with the square of their number: 100,000 marks
    take eight seconds, in which no other thread of the process runs.
    """
    if text.isascii():
        return text
    return "".join(unicodedata.normalize("NFKC", piece) for piece in _PIECES.findall(text))
