"""Fences: text that others wrote is put between marks that cannot occur in it.

A mark is a digest of the text that does not occur in the text. So no text can end its own block, no text needs to be
escaped, and the same text always has the same fence, which keeps a provider's prefix cache warm.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from agent_core.text.width import one_width

DATA: Final = "data"  # information, never to be followed
INSTRUCTIONS: Final = "instructions"  # to be followed; the fence only prevents a forged end
_LENGTH = 10  # characters of a mark
_BLOCK = re.compile(
    rf'^<(?P<kind>{DATA}|{INSTRUCTIONS})-(?P<mark>[0-9a-f]{{{_LENGTH}}}) of="(?P<name>[^"\n]*)">\n'
    r"(?P<text>.*?)\n</(?P=kind)-(?P=mark)>$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced text."""

    name: str
    text: str


def fenced(name: str, text: str, kind: str = DATA) -> str:
    """Return the text between its marks. ``name`` is the server's name for it."""
    mark = _mark_for(text)
    return f'<{kind}-{mark} of="{name}">\n{text}\n</{kind}-{mark}>'


def blocks(prompt: str) -> Iterator[Block]:
    """Yield the outermost fenced texts of a prompt."""
    for found in _BLOCK.finditer(prompt):
        yield Block(name=found["name"], text=found["text"])


def without_fences(prompt: str) -> str:
    """Return the prompt without the fences of its outermost blocks."""
    return _BLOCK.sub(lambda found: found["text"], prompt)


def _mark_for(text: str) -> str:
    """A mark that does not occur in the text, in any width or case."""
    plain = one_width(text).casefold()
    for number in count():
        mark = hashlib.sha256(f"{number}\n{text}".encode(errors="replace")).hexdigest()[:_LENGTH]
        if mark not in plain:
            return mark
    raise AssertionError("unreachable: a finite text cannot contain every mark")
