"""Requests as they went over the wire, written so that a person can read them and a review shows what changed.

What differs from run to run (ids, times of today) becomes a name; everything else is kept to the letter. A message
that stood in the request before is named, and the tools' own texts stand once, in `tools.md`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from automations.tools.cron import IN_AUTOMATIONS
from automations.tools.routines import REFLECTS

YEARS = r"20[23]\d"  # any day that a run or a prompt's example may name; conversations speak of later ones
WHERE = {
    REFLECTS: " in a heartbeat",
    IN_AUTOMATIONS: " in an automation's turn",
}  # of what is told otherwise there
_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_PATTERNS = (
    (re.compile(rf"\b(?:{_DAYS}), (?=(?:{YEARS})-)"), "<weekday>, "),
    (re.compile(rf'"weekday": "(?:{_DAYS})"'), '"weekday": "<weekday>"'),
    (re.compile(rf"\b(?:{YEARS})-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(rf"\b(?:{YEARS})-\d\d-\d\d\b"), "<date>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"(</?(?:data|instructions)-)[0-9a-f]{10}\b"), r"\1<mark>"),
)


def plain(text: str, names: dict[str, str]) -> str:
    """The text with names for what differs from run to run. `names`: ids and what stands for them."""
    for value in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![0-9a-zA-Z]){re.escape(value)}(?![0-9a-zA-Z])", names[value], text)
    for pattern, name in _PATTERNS:
        text = pattern.sub(name, text)
    return text


def tools_of(bodies: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Every tool that was sent along, by name, as its text in `tools.md`."""
    found = {}
    for body in bodies:
        for tool in body.get("tools", ()):
            function = tool["function"]
            schema = json.dumps(function["parameters"], indent=1, ensure_ascii=False, sort_keys=True)
            where = WHERE.get(function["description"], "")
            found[function["name"] + where] = (
                f"{_fenced(function['description'])}\n\n{_fenced(schema, 'json')}"
            )
    return found


def page(title: str, about: str, bodies: list[dict[str, Any]], names: dict[str, str]) -> str:
    """The requests of one conversation."""
    parts = [f"# {title}", about]
    before: list[Any] = []
    for number, body in enumerate(bodies, start=1):
        parts += [f"## Request {number}", _head(body)]
        parts += _messages(body["messages"], before, number)
        before = body["messages"]
    return plain("\n\n".join(parts) + "\n", names)


def _head(body: dict[str, Any]) -> str:
    tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    lines = [f"Tools: {', '.join(tools) or 'none'}."]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        lines.append(f"Must call: {choice['function']['name']}.")
    elif choice not in (None, "auto"):
        lines.append(f"Tool choice: {choice}.")
    return " ".join(lines)


def _messages(messages: list[Any], before: list[Any], number: int) -> list[str]:
    same = 0
    while same < min(len(messages), len(before)) and messages[same] == before[same]:
        same += 1
    parts = [f"(The first {same} messages as in request {number - 1}.)"] if same else []
    for message in messages[same:]:
        parts.append(f"### {message['role']}")
        if message.get("content"):
            parts.append(_fenced(_text(message["content"])))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            parts.append(_fenced(f"{function['name']} {function['arguments']}", "call"))
    return parts


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _fenced(text: str, kind: str = "text") -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}{kind}\n{text}\n{fence}"
