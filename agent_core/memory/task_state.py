"""Task state: what is kept of a conversation when its older messages leave the model's window (rule 7.6).

It contains durable facts only; ``lasting_facts`` removes waits for plan steps and live values. Facts are marked with
their source, speaker and date, which are read from the messages and never from a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final

from agent_core.text.json_values import json_objects


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


MOST_ITEMS: Final = 20
LONGEST_ITEM: Final = 300  # characters
_LABELS: Final = {
    "current_goal": "Goal",
    "active_flow": "Under way",
    "open_loops": "Open",
    "important_facts": "Fact",
    "last_decision": "Decided",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskStateData:
    """The parts of a task state."""

    current_goal: str = ""
    active_flow: str = ""
    open_loops: tuple[str, ...] = ()
    important_facts: tuple[str, ...] = ()
    last_decision: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskStateData:
        """Read texts and lists of texts; values of other types are ignored."""
        given: dict[str, Any] = {}
        for each in fields(cls):
            value = data.get(each.name)
            if each.type == "str":
                given[each.name] = _line(value)
            else:
                given[each.name] = _lines(value)
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """Return all parts by name."""
        return {"open_loops": list(self.open_loops), "important_facts": list(self.important_facts)} | {
            name: getattr(self, name) for name in ("current_goal", "active_flow", "last_decision")
        }

    def as_text(self) -> str:
        """Return the state for a model, one labelled item per line."""
        lines = []
        for name, label in _LABELS.items():
            value = getattr(self, name)
            lines += [f"{label}: {text}" for text in ([value] if isinstance(value, str) else value) if text]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionReply:
    """The task state that a model wrote. ``sources`` maps facts to the numbers, from 1, of the messages shown."""

    held: TaskStateData
    sources: Mapping[str, int] = field(default_factory=dict)


def read_reply(text: str) -> CompressionReply | None:
    """Return the first JSON object in the text whose parts are all present and valid; None without one.

    An answer with a missing or invalid part is ignored as a whole, because it would empty that part of the state.
    """
    for found in json_objects(text):
        facts = _facts(found.get("important_facts"))
        plain = found | {"important_facts": None if facts is None else [fact for fact, _ in facts]}
        if facts is not None and all(
            _is_valid(each.type == "str", plain.get(each.name)) for each in fields(TaskStateData)
        ):
            sources = {_line(fact): number for fact, number in facts if number}
            return CompressionReply(held=TaskStateData.from_json(plain), sources=sources)
    return None


def _facts(value: object) -> list[tuple[str, int]] | None:
    """The facts, each a text or an object, with the numbers of their messages (0: none). None: not such a list."""
    facts: list[tuple[str, int]] = []
    for item in value if isinstance(value, list) else [None]:
        fact, number = (item.get("fact"), item.get("message")) if isinstance(item, dict) else (item, 0)
        if not isinstance(fact, str):
            return None
        digits = str(number).strip()
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 9
        facts.append((fact, int(digits) if is_number else 0))
    return facts


def _is_valid(is_text: bool, value: object) -> bool:
    if is_text:
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _lines(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    lines = dict.fromkeys(line for item in items if (line := _line(item)))
    return tuple(lines)[:MOST_ITEMS]


def _line(value: object) -> str:
    return " ".join(value.replace("\x00", "").split())[:LONGEST_ITEM] if isinstance(value, str) else ""
