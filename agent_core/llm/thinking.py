"""Takes a model's reasoning out of its text, if a server leaves it there between tags.

Only reasoning before the answer counts, because an answer may speak of the tags: blocks ``<think>…</think>`` or
``<thinking>…</thinking>`` at the very beginning, also one that is never closed; without such a block, everything up to
a closing tag that was never opened, unless that tag is quoted or stands in code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agent_core.llm.protocol import Thought

_OPEN: Final = re.compile(r"\s*<(?:think|thinking)>", re.IGNORECASE)
_CLOSE: Final = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)
_ANY_OPEN: Final = re.compile(r"<(?:think|thinking)>", re.IGNORECASE)
_OPENING_TAGS: Final = ("<think>", "<thinking>")
_CLOSING_TAGS: Final = ("</think>", "</thinking>")
_LONGEST_TAG: Final = len("</thinking>")
_QUOTES: Final = "`'\"“‘«"  # noqa: RUF001


class ThinkingFilter:
    """Splits a streamed text into what can be shown and the reasoning.

    A closing tag that was never opened comes when text was shown already; then ``text``, which is stored, is shorter
    than what was shown. ``late``: the model is known to do that, so its text counts as reasoning until the tag comes,
    and as the answer if none comes.
    """

    def __init__(self, *, late: bool = False) -> None:
        self._shown: list[str] = []
        self._unclosed: list[str] = []  # the text of a model that is known to be late
        self._held = ""  # may be the beginning of a tag
        self._is_start, self._thinks, self._is_late, self._had_block = True, late, late, False

    def feed(self, piece: str | Thought | None) -> Iterator[str | Thought]:
        """Take a piece, and yield what is known of it. Reasoning that came apart from the text passes."""
        if isinstance(piece, Thought):
            yield piece
            return
        self._held += piece or ""
        before = None
        while self._held and self._held != before:
            before = self._held
            yield from self._in_thought() if self._thinks else self._outside()

    def end(self) -> Iterator[str | Thought]:
        """Yield what was held back."""
        held, self._held = self._held, ""
        if self._thinks and self._is_late:
            yield from self._show("".join([*self._unclosed, held]))
        elif self._thinks and held:
            yield Thought(text=held)
        elif held.strip():
            yield from self._show(held)

    @property
    def text(self) -> str:
        """The text without reasoning."""
        text = "".join(self._shown)
        end = 0 if self._had_block else _after_unopened(text)
        return text[end:].lstrip() if end else text

    @property
    def is_late(self) -> bool:
        """Whether a closing tag came that was never opened. What was known of the model stays without any text."""
        text = "".join(self._shown)
        if self._is_late:
            return self._had_block or not text.strip()
        return not self._had_block and _after_unopened(text) > 0

    def _show(self, text: str) -> Iterator[str]:
        if text:
            self._shown.append(text)
            yield text

    def _in_thought(self) -> Iterator[str | Thought]:
        closed = _CLOSE.search(self._held)
        if closed is not None:
            thought, self._held = self._held[: closed.start()], self._held[closed.end() :]
            self._thinks, self._is_start, self._had_block = False, True, True
        else:
            kept = _length_of_possible_tag(self._held)
            thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        if self._is_late and self._thinks:
            self._unclosed.append(thought)
        if thought:
            yield Thought(text=thought)

    def _outside(self) -> Iterator[str | Thought]:
        if self._is_start:
            if opened := _OPEN.match(self._held):
                self._held, self._thinks, self._had_block = self._held[opened.end() :], True, True
                return
            begun = self._held.lstrip()
            if not begun or any(tag.startswith(begun.lower()) for tag in _OPENING_TAGS):
                return
            if self._had_block:
                self._held = begun
        self._is_start = False
        text, self._held = self._held, ""
        yield from self._show(text)


def without_thinking(text: str) -> str:
    """Return a whole text without its reasoning."""
    split = ThinkingFilter()
    for _ in (*split.feed(text), *split.end()):
        pass
    return split.text


def _after_unopened(text: str) -> int:
    """Where the answer begins after a closing tag that was never opened; 0 if there is no such tag."""
    closed = _CLOSE.search(text)
    if closed is None:
        return 0
    before = text[: closed.start()]
    is_quoted = before.endswith(tuple(_QUOTES)) or before.count("```") % 2 == 1
    return 0 if is_quoted or _ANY_OPEN.search(before) else closed.end()


def _length_of_possible_tag(text: str) -> int:
    """How many of the last characters may be the beginning of a closing tag."""
    start = text.rfind("<", max(0, len(text) - _LONGEST_TAG))
    tail = text[start:].lower()
    return len(tail) if start >= 0 and any(tag.startswith(tail) for tag in _CLOSING_TAGS) else 0
