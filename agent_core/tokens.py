"""How many tokens a text is, by a real tokenizer where one is at hand, else by an estimate."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from agent_core.types import Entry

_PER_ENTRY = 4  # tokens that a message costs beside its text
_LETTERS_PER_TOKEN = 4.0
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
    letters = sum(1 for each in text if ord(each) < 0x250) if not text.isascii() else len(text)
    return ceil(letters / _LETTERS_PER_TOKEN + (len(text) - letters) / _OTHERS_PER_TOKEN)


def of_entry(entry: Entry) -> int:
    """The tokens of an entry with its calls and results."""
    parts = [entry.content, *(result.output for result in entry.results)]
    parts += [f"{call.name} {call.unparsed or call.arguments}" for call in entry.calls]
    return _PER_ENTRY + sum(of_text(part) for part in parts)
