"""Counts the tokens of texts, with a tokenizer if one is set, else by an estimate."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from agent_core import types
from agent_core.types import Entry

_PER_ENTRY = 4  # tokens of a message beside its text
_LETTERS_PER_TOKEN = 4.0
_UNBROKEN_PER_TOKEN = 2.5  # letters of keys, encoded data and minified code
_LONGEST_WORD = 20  # characters; a longer run is not a word
_OTHERS_PER_TOKEN = 1.0  # characters of scripts without spaces, such as Chinese

_count: Callable[[str], int] | None = None


def use_tokenizer(count: Callable[[str], int] | None) -> None:
    """Set the process's tokenizer; None: estimate."""
    global _count  # noqa: PLW0603 - set once, when the process starts
    _count = count


def of_text(text: str) -> int:
    """The tokens of a text."""
    if _count is not None:
        return _count(text)
    letters = len(text) if text.isascii() else len(text.encode("latin-1", "ignore"))
    unbroken = _unbroken(text, letters)
    words = (letters - unbroken) / _LETTERS_PER_TOKEN
    return ceil(words + unbroken / _UNBROKEN_PER_TOKEN + (len(text) - letters) / _OTHERS_PER_TOKEN)


def _unbroken(text: str, letters: int) -> int:
    """How many letters are in long runs without a space. The first check is a fast answer for prose."""
    if letters < (text.count(" ") + text.count("\n") + 1) * _LONGEST_WORD / 2:
        return 0
    runs = (run if run.isascii() else run.encode("latin-1", "ignore") for run in text.split())
    return sum(length for run in runs if (length := len(run)) > _LONGEST_WORD)


def of_entry(entry: Entry) -> int:
    """The tokens of an entry with its calls and results."""
    count = _PER_ENTRY + of_text(entry.content) + types.TOKENS * len(entry.images)
    for result in entry.results:
        count += of_text(result.output)
    for call in entry.calls:
        count += of_text(f"{call.name} {call.unparsed or call.arguments}")
    return count
