"""Split long answers into messages that Telegram accepts: at most 4,096 UTF-16 code units each."""

from __future__ import annotations

LONGEST = 4_096  # UTF-16 code units, as Telegram counts
SHORTEST = LONGEST // 2  # a part is not cut before this, so that a text has few parts
_PLACES = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")  # where to cut, the best first


def units(text: str) -> int:
    """The length of a text in UTF-16 code units."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def split(text: str, longest: int = LONGEST) -> list[str]:
    """Return the parts of a text. Joined they are the text again."""
    parts = []
    while units(text) > longest:
        head = _head(text, longest)
        cut = _cut(head, min(SHORTEST, longest // 2))
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]


def _head(text: str, longest: int) -> str:
    """The longest beginning of the text that fits."""
    used = 0
    for number, character in enumerate(text):
        used += 2 if ord(character) > 0xFFFF else 1
        if used > longest:
            return text[:number]
    return text


def _cut(head: str, shortest: int) -> int:
    """Where to end a part: after the last paragraph, line, sentence or word that is not too early."""
    for place in _PLACES:
        found = head.rfind(place)
        if found >= shortest:
            return found + len(place)
    return len(head)
