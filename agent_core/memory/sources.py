"""Marks facts with their source, speaker and date, which are read from the messages and never from a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Final


class Speaker(StrEnum):
    """The author of a message. ``OUTSIDE``: the agent, in a turn that had read text from outside."""

    PERSON = "person"
    AGENT = "agent"
    AUTOMATION = "automation"
    OUTSIDE = "outside"


@dataclass(frozen=True, kw_only=True, slots=True)
class SaidMessage:
    """A message, word for word, with its time in the agent's zone."""

    who: Speaker
    at: datetime
    text: str


# Each begins where spaces begin: from within them, a long line of spaces would take time by the square of its length.
_MARK: Final = re.compile(rf"(?<!\s)\s*\[(?:{'|'.join(Speaker)}) \d{{4}}-\d{{2}}-\d{{2}}\]$")
_MARKS: Final = re.compile(rf"(?<!\s)\s*\[(?:{'|'.join(Speaker)}) \d{{4}}-\d{{2}}-\d{{2}}\]", re.IGNORECASE)
_OUTSIDE: Final = re.compile(rf"\[{Speaker.OUTSIDE} \d{{4}}-\d{{2}}-\d{{2}}\]", re.IGNORECASE)
_BEGINNING: Final = re.compile(r"^(?:[-*+] )?(?:(?:Fact|Goal|Under way|Open|Decided): )?")
_FIGURE = re.compile(
    r"\d+(?:[., \u00a0']\d{3}(?!\d))*(?:[.,]\d+)?(?:\s?(?P<unit>(?:k|m|bn|thousand|million)\b|万|千|亿))?",
    re.IGNORECASE,
)
_UNITS: Final = {"k": 3, "thousand": 3, "千": 3, "万": 4, "m": 6, "million": 6, "亿": 8, "bn": 9}


def with_source(fact: str, who: Speaker, on: date, *, longest: int) -> str:
    """Return the fact with its source mark, such as `[person 2026-11-23]`, cut to `longest` characters."""
    mark = f" [{who} {on.isoformat()}]"
    return without_source(fact)[: longest - len(mark)] + mark


def without_source(fact: str) -> str:
    """Return the fact without its source mark."""
    return _MARK.sub("", fact)


def is_outside(line: str) -> bool:
    """Whether the line is marked as text from outside."""
    return _OUTSIDE.search(line) is not None


def mark_new_lines(before: str, after: str, on: date) -> str:
    """Mark each new line of a text as from outside. For texts written by a turn that had read text from outside.

    Marks that a new line already has are removed, and its line separators (such as U+2028) become spaces.
    """
    known = Counter(before.split("\n"))
    lines = []
    for line in after.split("\n"):
        is_new = known[line] <= 0
        known[line] -= 1
        lines.append(_marked_line(line, on) if is_new and line.strip() else line)
    return "\n".join(lines)


def restore_marks(text: str, before: str) -> str:
    """Return the text with the outside marks of `before` put back on the lines that lost them."""
    marks = {_statement(line): mark[0] for line in before.split("\n") if (mark := _OUTSIDE.search(line))}
    return "\n".join(
        f"{line.rstrip()} {marks[statement]}"
        if (statement := _statement(line)) in marks and not is_outside(line)
        else line
        for line in text.split("\n")
    )


def _marked_line(line: str, on: date) -> str:
    plain = " ".join(_MARKS.sub("", line).splitlines()).rstrip()
    return f"{plain} [{Speaker.OUTSIDE} {on.isoformat()}]"


def _statement(line: str) -> str:
    """The text of a line without marks, bullets and the labels of a task state, to compare it."""
    return _BEGINNING.sub("", " ".join(_MARKS.sub("", line).split())).rstrip(".").casefold()


def figures_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the numbers in texts in one spelling: 300,000, 300k and 300000 are the same."""
    return frozenset(figure for text in texts for figure in map(_normalized, _FIGURE.finditer(text)))


def _normalized(found: re.Match[str]) -> str:
    unit = (found["unit"] or "").lower()
    text = found[0][: len(found[0]) - len(found["unit"] or "")].strip()
    whole = re.sub(r"[., \u00a0'](?=\d{3}(?!\d))", "", text).replace(",", ".")
    whole, _, part = whole.partition(".")
    if unit:
        part = part.ljust(_UNITS[unit], "0")
        whole, part = whole + part[: _UNITS[unit]], part[_UNITS[unit] :]
    part = part.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{part}" if part else "")
