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

from agent_core.text.formats import one_width

DATA: Final = "data"  # information, never to be followed
INSTRUCTIONS: Final = "instructions"  # to be followed; the fence only prevents a forged end
FILE: Final = "attached file"  # the name of the blocks with the texts of files
_LENGTH = 10  # characters of a mark
_BEGIN = re.compile(
    rf'^<(?P<fence>(?:{DATA}|{INSTRUCTIONS})-[0-9a-f]{{{_LENGTH}}}) of="(?P<name>[^"\n]*)">\n', re.MULTILINE
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
    for block, _, _ in _outermost(prompt):
        yield block


def without_fences(prompt: str, dropped: str = "") -> str:
    """Return the prompt without the fences of its outermost blocks, and without the texts of those with a name."""
    pieces, end = [], 0
    for block, start, after in _outermost(prompt):
        pieces += [prompt[end:start], "" if block.name == dropped else block.text]
        end = after
    return "".join((*pieces, prompt[end:]))


def _outermost(prompt: str) -> Iterator[tuple[Block, int, int]]:
    """The blocks, each with the places where it begins and ends. A fence without an end is looked for once."""
    place, endless = 0, set[str]()
    while (begun := _BEGIN.search(prompt, place)) is not None:
        place = begun.end()
        end = -1 if begun["fence"] in endless else _end_of(prompt, begun["fence"], place)
        if end < 0:
            endless.add(begun["fence"])
            continue
        text = prompt[place:end]
        place = end + len(f"\n</{begun['fence']}>")
        yield Block(name=begun["name"], text=text), begun.start(), place


def _end_of(prompt: str, fence: str, place: int) -> int:
    """Where the text of a block ends, before the line with its closing mark; -1 without one."""
    closing = f"\n</{fence}>"
    end = prompt.find(closing, place)
    while end >= 0 and prompt[end + len(closing) : end + len(closing) + 1] not in ("", "\n"):
        end = prompt.find(closing, end + 1)
    return end


def _mark_for(text: str) -> str:
    """A mark that does not occur in the text, in any width or case."""
    plain = one_width(text).casefold()
    for number in count():
        mark = hashlib.sha256(f"{number}\n{text}".encode(errors="replace")).hexdigest()[:_LENGTH]
        if mark not in plain:
            return mark
    raise AssertionError("unreachable: a finite text cannot contain every mark")
