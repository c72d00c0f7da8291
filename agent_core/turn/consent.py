"""Writes the question for consent to dangerous tool calls, with the tools and their arguments (rule 3.5).

The server writes it and no model, so it names exactly the calls that a yes allows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_core.text import phrases
from agent_core.text.formats import is_visible
from agent_core.tool_spec import ToolSpec, version_of
from agent_core.turn.tool_calls import intent
from agent_core.types import ToolCall

LONGEST_IN_FULL: Final = 1500  # characters of arguments; of longer ones the question has the digest
NEEDED: Final = "NeedsConsent"  # the error class of a refused call that a yes would allow
HIDDEN: Final = "…"
_LITERAL: Final = "    "  # before a line of its own after an empty one: code, in Markdown
_ID = re.compile(r"(?<=\(#)[a-z0-9]{8}(?=\))|(?<=/api/questions/)[a-z0-9]{8}(?=/)")  # see question_of
_AGAIN: Final = {
    False: "Other things were said since I asked, so I ask again.",
    True: "我问过之后又说了别的事，所以再问一次。",  # noqa: RUF001 - Chinese
}


def call_to_json(call: ToolCall, spec: ToolSpec) -> dict[str, Any]:
    """Return a call as a question stores it, with the version of its tool."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "version": version_of([spec])}


def is_the_call(asked: Mapping[str, Any], call: ToolCall, spec: ToolSpec) -> bool:
    """Whether this is the call of the question, and its tool has not changed since."""
    wanted = ToolCall(id="", name=asked["name"], arguments=asked["arguments"])
    return intent(wanted) == intent(call) and asked.get("version") == version_of([spec])


def question_of(
    calls: Sequence[Mapping[str, Any]], *, question_id: str, like: str, again: bool = False, until: str = ""
) -> str:
    """Return the question in the language of `like`. `again`: it was asked before, and other messages followed.

    `until`: a scheduled turn asks, so the answer must name the question, and counts until this time.

    Each call is one line that a client which renders Markdown shows to the letter, whatever the answer above ends with.
    """
    chinese = phrases.is_chinese(like)
    link = f"/api/questions/{question_id}/"
    shown = [describe_call(call["name"], call["arguments"], link, chinese=chinese) for call in calls]
    if len(shown) == 1:
        head = "可以使用这个工具吗？" if chinese else "May I use this tool?"  # noqa: RUF001 - Chinese
    else:
        head = "可以使用以下工具吗？" if chinese else "May I use these tools?"  # noqa: RUF001 - Chinese
        shown = [f"{number}. {each}" for number, each in enumerate(shown, 1)]
    how = (
        f"回复“是”只允许这一次，回复“否”则不做。(#{question_id})"  # noqa: RUF001 - Chinese
        if chinese
        else f'Reply "yes" to allow just this once, or "no". (#{question_id})'
    )
    if until:
        how = (
            f"{until} 之前回复“是”加编号，服务器就调用这一次，回复“否”加编号则不做。(#{question_id})"  # noqa: RUF001 - Chinese
            if chinese
            else f'Until {until}, reply "yes" with this number to have it done once, or "no". (#{question_id})'
        )
    asked = "\n".join(f"{_LITERAL}{each}" for each in shown)
    return "\n\n".join(([_AGAIN[chinese]] if again else []) + [head, asked, how])


def without_id(question: str) -> str:
    """Return the question for the model, without its id, so that the model cannot repeat it."""
    return _ID.sub(HIDDEN, question)


def shown_value(value: Any) -> str:
    """Return arguments, or a value of them, as JSON with invisible and direction-changing characters escaped."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return "".join(letter if is_visible(letter) else json.dumps(letter)[1:-1] for letter in text)


def describe_call(name: str, arguments: Mapping[str, Any], link: str, *, chinese: bool = False) -> str:
    """Describe a call: with all its arguments, or with their digest and a link, but never with a part of them."""
    shown = shown_value(arguments)
    if len(shown) <= LONGEST_IN_FULL:
        return f"{name}，参数 {shown}" if chinese else f"{name} with {shown}"  # noqa: RUF001 - Chinese
    digest, size = hashlib.sha256(shown.encode()).hexdigest(), f"{len(shown):,}"
    if chinese:
        return f"{name}，参数共 {size} 个字符（SHA-256 {digest}，全文见 {link}）"  # noqa: RUF001 - Chinese
    return f"{name} with {size} characters of arguments (SHA-256 {digest}, in full at {link})"
