"""Task state: what a conversation holds on to when its older messages leave the model's view (rule 7.6).

Durable facts only. What a model writes is filtered: no step-level waits, no live values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from agent_core import words
from agent_core.verdict import objects

MOST_ITEMS: Final = 20
LONGEST_ITEM: Final = 300  # characters
_LABELS: Final = {
    "current_goal": "Goal",
    "active_flow": "Under way",
    "open_loops": "Open",
    "important_facts": "Fact",
    "last_decision": "Decided",
}
WAITS: Final = (
    *(
        "wait for",
        "waiting for",
        "waits for",
        "await",
        "awaiting",
        "pending step",
        "next step",
        "call the tool",
    ),
    *(
        "call tool",
        "use the tool",
        "ask the user",
        "needs to provide",
        "user must provide",
        "user to provide",
    ),
    *("等待", "待用户", "等用户", "下一步", "调用工具", "需要用户提供"),
)
VALUES: Final = (
    *("balance", "balances", "price", "prices", "position", "positions", "right now", "currently"),
    *("at the moment", "as of now", "is configured", "are configured", "not configured", "is enabled"),
    *("is disabled", "does not exist", "no tool", "余额", "价格", "持仓", "目前", "当前", "已配置", "未配置"),
)
STATES: Final = (
    *("runs", "is scheduled", "are scheduled", "exists", "exist", "there is", "there are", "has", "have"),
    *("enabled", "disabled", "paused", "is set", "set to", "created", "deleted", "有", "存在", "已"),
)
_AMOUNT = re.compile(r"[$€£¥]\s?\d|\d\s?(?:%|usd|usdt|eur|btc|eth|元|美元)(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """The parts of a task state."""

    current_goal: str = ""
    active_flow: str = ""
    open_loops: tuple[str, ...] = ()
    important_facts: tuple[str, ...] = ()
    last_decision: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Held:
        """Read texts and lists of texts; what is none of these is left out."""
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

    def in_words(self) -> str:
        """One line for each thing, as a model reads it."""
        lines = []
        for name, label in _LABELS.items():
            value = getattr(self, name)
            lines += [f"{label}: {text}" for text in ([value] if isinstance(value, str) else value) if text]
        return "\n".join(lines)


def read(text: str) -> Held | None:
    """Read a model's answer: the first JSON object in it that has all the parts as they should be. None without one.

    A part that is left out or of another type would else be emptied by an answer that went wrong.
    """
    for found in objects(text):
        if all(_is_sound(each.type == "str", found.get(each.name)) for each in fields(Held)):
            return Held.from_json(found)
    return None


def _is_sound(is_text: bool, value: object) -> bool:
    if is_text:
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def durable(held: Held, *, tools: Iterable[str], live: Iterable[str]) -> Held:
    """Only what lasts. ``tools``: names of tools; ``live``: words by which live state is spoken of."""
    passing = (*WAITS, *(name for name in tools if "_" in name))  # others are plain words
    about_live = tuple(live)

    def lasts(text: str) -> bool:
        return not words.holds(text, passing) and not _AMOUNT.search(text)

    def is_own(text: str) -> bool:
        if words.holds(text, about_live) and (words.holds(text, STATES) or any(map(str.isdigit, text))):
            return False  # how something stands that can be looked up
        return lasts(text) and not words.holds(text, VALUES)

    return replace(
        held,
        current_goal=held.current_goal if lasts(held.current_goal) else "",
        active_flow=held.active_flow if lasts(held.active_flow) else "",
        open_loops=tuple(text for text in held.open_loops if is_own(text)),
        important_facts=tuple(text for text in held.important_facts if is_own(text)),
        last_decision=held.last_decision if lasts(held.last_decision) else "",
    )


def _lines(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    lines = dict.fromkeys(line for item in items if (line := _line(item)))
    return tuple(lines)[:MOST_ITEMS]


def _line(value: object) -> str:
    return " ".join(value.replace("\x00", "").split())[:LONGEST_ITEM] if isinstance(value, str) else ""
