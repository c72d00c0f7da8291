"""How many tokens a text is, by a real tokenizer where one is at hand, else by an estimate."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from agent_core.types import Entry

_PER_ENTRY = 4  # tokens that a message costs beside its text
_LETTERS_PER_TOKEN = 4.0
_UNBROKEN_PER_TOKEN = (
    2.5  # keys, encoded data, minified code: they fall into more and shorter pieces than words
)
_LONGEST_WORD = 20  # characters; what is longer is no word
_OTHERS_PER_TOKEN = 1.0  # scripts without spaces, such as Chinese: about a token for each character

_count: Callable[[str], int] | None = None


def use(count: Callable[[str], int] | None) -> None:
    """Count with this from now on; None: estimate."""
    global _count  # noqa: PLW0603 - one for the process, set once as it starts
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
    """How many letters stand in long runs without a space. Ordinary prose is seen at a glance: this runs each turn."""
    if letters < (text.count(" ") + text.count("\n") + 1) * _LONGEST_WORD / 2:
        return 0
    runs = (run if run.isascii() else run.encode("latin-1", "ignore") for run in text.split())
    return sum(length for run in runs if (length := len(run)) > _LONGEST_WORD)


def of_entry(entry: Entry) -> int:
    """The tokens of an entry with its calls and results."""
    parts = [entry.content, *(result.output for result in entry.results)]
    parts += [f"{call.name} {call.unparsed or call.arguments}" for call in entry.calls]
    return _PER_ENTRY + sum(of_text(part) for part in parts)
