"""Task state: what is kept of a conversation when its older messages leave the model's window (rule 7.6).

It contains durable facts only; ``lasting_facts`` removes waits for plan steps and live values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from agent_core.verdict import json_objects

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
