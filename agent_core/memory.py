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
SETTINGS: Final = (  # how something stands, whatever it is
    *("is configured", "are configured", "not configured", "is enabled", "is disabled", "does not exist"),
    *("no tool", "已配置", "未配置"),
)
STATES: Final = (  # how something stands, of what is live
    *("runs", "is scheduled", "are scheduled", "exists", "exist", "there is", "there are", "has", "have"),
    *("enabled", "disabled", "paused", "is set", "set to", "created", "deleted", "is on", "is off", "are on"),
    *("are off", "right now", "currently", "at the moment", "as of now", "有", "存在", "已", "目前", "当前"),
)
NOW: Final = ("right now", "currently", "at the moment", "as of now", "目前", "当前")
VALUES: Final = (  # what a figure beside it makes a live value
    *("balance", "balances", "price", "prices", "priced", "position", "positions", "holding", "holdings"),
    *("trades at", "traded at", "trading at", "exchange rate", "orders", "open order"),
    *("余额", "价格", "持仓", "仓位", "汇率", "订单", "挂单"),
)
_FIGURES = re.compile(r"\d")
_NAMED: Final = r"(?:pass(?:word|phrase|code|wd)|pwd|pin|secret|api[-_ ]?key|access[-_ ]?key|token)"
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[abprs])[-_][\w-]{8,}|\b(?:AKIA|AIza|eyJ)[\w-]{12,}"
    r"|-----BEGIN|\b(?i:bearer)\s+\S{16,}|\b[0-9a-fA-F]{32,}\b"
    r"|\b(?=\w*[0-9])(?=\w*[a-z])(?=\w*[A-Z])[A-Za-z0-9_]{24,}\b"
    # "the password for the door is x": a single word, or one with a figure in it
    rf"|\b(?i:{_NAMED})(?:\s+(?:for|of|to|on)(?:\s+\S+){{1,4}}?)?(?:\s+(?:is|was)\s*:?|\s*[:=])\s*"
    r"(?:\S*[0-9]\S*|\S+\s*$)"
    rf"|\b(?i:{_NAMED})\s+(?=\S*[0-9])\S{{4,}}"
    r"|(?:密码|口令|密钥|令牌)\s*(?:是|为|[:=\uff1a])\s*[!-~]{3,}"
)


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
    """Only what lasts, by one test for all parts. ``tools``: names of tools; ``live``: words for live state."""
    passing = (*WAITS, *SETTINGS, *(name for name in tools if "_" in name))  # others are plain words
    about_live = tuple(live)

    def lasts(text: str) -> bool:
        if words.holds(text, passing) or _SECRET.search(text):
            return False
        has_figure = any(map(str.isdigit, text))
        if words.holds(text, about_live) and (has_figure or words.holds(text, STATES)):
            return False  # how something stands that can be looked up
        return not (words.holds(text, VALUES) and (has_figure or words.holds(text, NOW)))

    def is_goal(text: str) -> bool:
        # a figure in a wish says how something is to be, not how it stands
        wish = _FIGURES.sub("", text) if words.begins("request", text) else text
        return lasts(wish) and not _SECRET.search(text)

    return replace(
        held,
        current_goal=held.current_goal if is_goal(held.current_goal) else "",
        active_flow=held.active_flow if lasts(held.active_flow) else "",
        open_loops=tuple(filter(lasts, held.open_loops)),
        important_facts=tuple(filter(lasts, held.important_facts)),
        last_decision=held.last_decision if lasts(held.last_decision) else "",
    )


def _lines(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    lines = dict.fromkeys(line for item in items if (line := _line(item)))
    return tuple(lines)[:MOST_ITEMS]


def _line(value: object) -> str:
    return " ".join(value.replace("\x00", "").split())[:LONGEST_ITEM] if isinstance(value, str) else ""
