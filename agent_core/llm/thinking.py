"""Takes a model's reasoning out of its text, if a server leaves it there between tags.

An answer may speak of the tags, so only these count: blocks ``<think>…</think>``, ``<thinking>…</thinking>`` or
``[THINK]…[/THINK]`` at the very beginning, also one that is never closed; closed blocks that begin a line, outside of
code; and without a block at the beginning, everything up to a closing tag that was never opened, unless that tag is
quoted or stands in code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agent_core.llm.protocol import Thought

_IGNORED: Final = " \t\r\n\ufeff\u200b"
_OPENS: Final = r"(?:<(?:think|thinking)\s*>|(?-i:\[THINK\]))"
_OPEN: Final = re.compile(rf"[{_IGNORED}]*{_OPENS}", re.IGNORECASE)
_CLOSE: Final = re.compile(r"</(?:think|thinking)\s*>|(?-i:\[/THINK\])", re.IGNORECASE)
_ANY_OPEN: Final = re.compile(_OPENS, re.IGNORECASE)
_LINE_OPEN: Final = re.compile(rf"^[ \t]*{_OPENS}", re.IGNORECASE | re.MULTILINE)
_MAY_OPEN: Final = re.compile(r"(?:^|(?<=\n))[ \t]*[<\[][a-z]{0,8}\s{0,8}\Z", re.IGNORECASE)
_OPENING_TAGS: Final = ("<think>", "<thinking>", "[think]")
_CLOSING_TAGS: Final = ("</think>", "</thinking>", "[/think]")
_LONGEST_TAG: Final = len("</thinking>")
_QUOTES: Final = "`'\"“‘«"  # noqa: RUF001


class ThinkingFilter:
    """Splits a streamed text into what can be shown and the reasoning.

    A closing tag that was never opened comes when text was shown already; then ``text``, which is stored, is shorter
    than what was shown. ``late``: the model is known to do that, so its text counts as reasoning until the tag comes,
    and as the answer if none comes; then the model is late no more.
    """

    def __init__(self, *, late: bool = False) -> None:
        self._shown: list[str] = []
        self._unclosed: list[str] = []  # text that is reasoning only if a closing tag comes
        self._is_inner = False  # in a block that begins a later line
        # of the shown text: whether its last line is blank, how many ``` it has, the backticks at its end
        self._is_blank, self._fences, self._ticks = True, 0, ""
        self._blanks: list[str] = []  # what comes before the first visible character
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
        held, self._held = "".join([*self._blanks, self._held]), ""
        if self._thinks and (self._is_late or self._is_inner):
            text = "".join([*self._unclosed, held])
            self._is_late = self._is_late and not text.strip()
            yield from self._show(text)
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
        """Whether a closing tag came that was never opened. For a reply without text: whether the model is known to do
        so.
        """
        text = "".join(self._shown)
        if self._is_late:
            return self._had_block or not text.strip()
        return not self._had_block and _after_unopened(text) > 0

    def _show(self, text: str) -> Iterator[str]:
        if text:
            self._shown.append(text)
            line = text.rpartition("\n")
            self._is_blank = not line[2].strip() and (bool(line[1]) or self._is_blank)
            ticks = f"{self._ticks}{text}"
            self._fences += ticks.count("```")
            self._ticks = "`" * ((len(ticks) - len(ticks.rstrip("`"))) % 3)
            yield text

    def _in_thought(self) -> Iterator[str | Thought]:
        closed = _CLOSE.search(self._held)
        if closed is not None:
            thought, self._held = self._held[: closed.start()], self._held[closed.end() :]
            self._had_block = self._had_block or not self._is_inner
            self._thinks, self._is_start, self._is_inner, self._unclosed = False, True, False, []
        else:
            kept = _length_of_possible_tag(self._held)
            thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        if self._thinks and (self._is_late or self._is_inner):
            self._unclosed.append(thought)
        if thought:
            yield Thought(text=thought)

    def _outside(self) -> Iterator[str | Thought]:
        if self._is_start:
            if not self._held.strip(_IGNORED):
                self._blanks.append(self._held)
                self._held = ""
                return
            self._held, self._blanks = "".join([*self._blanks, self._held]), []
            if opened := _OPEN.match(self._held):
                yield from self._open(opened)
                return
            begun = self._held.lstrip(_IGNORED)
            if any(tag.startswith(begun.lower()) for tag in _OPENING_TAGS):
                return
            if self._had_block or self._shown:
                self._held = begun
        self._is_start = False
        first_line = 0 if self._is_blank else self._held.find("\n") + 1 or len(self._held)
        if opened := self._opening_line(first_line):
            yield from self._open(opened)
            return
        may_open = _MAY_OPEN.search(self._held, first_line)
        is_tag = may_open is not None and any(
            tag.startswith(may_open[0].strip().lower()) for tag in _OPENING_TAGS
        )
        end = may_open.start() if may_open is not None and is_tag else len(self._held)
        text, self._held = self._held[:end], self._held[end:]
        yield from self._show(text)

    def _open(self, opened: re.Match[str]) -> Iterator[str]:
        """Show what stands before a block, and begin it. The first block of a text may stay open until its end."""
        before, self._held = self._held[: opened.start()], self._held[opened.end() :]
        yield from self._show(before)
        self._thinks, self._is_inner, self._unclosed = True, bool(self._shown), [opened[0]]

    def _opening_line(self, start: int) -> re.Match[str] | None:
        """The first tag that begins a line outside of code."""
        fences, at = self._fences, 0
        for found in _LINE_OPEN.finditer(self._held, start):
            fences += self._held.count("```", at, found.start())
            at = found.start()
            if fences % 2 == 0:
                return found
        return None


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
    start = max(text.rfind(each, max(0, len(text) - _LONGEST_TAG)) for each in "<[")
    tail = text[start:].lower()
    return len(tail) if start >= 0 and any(tag.startswith(tail) for tag in _CLOSING_TAGS) else 0
