"""Find the fenced blocks of a Markdown text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE_LINE = re.compile(r"^[^\S\n]*(?P<ticks>`{3,})(?P<info>.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A fenced block: its position with fences, the position of its body, and the word after the opening fence."""

    start: int
    end: int
    body: tuple[int, int]
    language: str
    closed: bool


def fences(content: str) -> Iterator[Fence]:
    """The fenced blocks of a Markdown text; an unclosed one ends with the text."""
    opened: tuple[int, int, int, str] | None = None  # start, body, ticks, language
    for line in _FENCE_LINE.finditer(content):
        ticks, info = len(line["ticks"]), line["info"].strip()
        if opened is None and "`" not in info:
            after = min(line.end() + 1, len(content))
            opened = (line.start(), after, ticks, info.split(None, 1)[0].lower() if info else "")
        elif opened is not None and not info and ticks >= opened[2]:
            body = (opened[1], line.start())
            yield Fence(start=opened[0], end=line.end("ticks"), body=body, language=opened[3], closed=True)
            opened = None
    if opened is not None:
        end = len(content)
        yield Fence(start=opened[0], end=end, body=(opened[1], end), language=opened[3], closed=False)


def ticks_of(content: str, fence: Fence) -> str:
    """The backticks that open a block."""
    line = content[fence.start : fence.body[0]].strip()
    return "`" * (len(line) - len(line.lstrip("`")))
