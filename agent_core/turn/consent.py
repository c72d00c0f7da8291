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
from agent_core.tool_spec import CallInWords, ToolSpec, version_of
from agent_core.turn.tool_calls import intent
from agent_core.types import ToolCall

LONGEST_IN_FULL: Final = 1500  # characters of arguments; of longer ones the question has the digest
LONGEST_WORDS: Final = 300  # characters of a call in words
LONGEST_NAME: Final = 60  # characters of a name in them
NEEDED: Final = "NeedsConsent"  # the error class of a refused call that a yes would allow
HIDDEN: Final = "…"
_LITERAL: Final = "    "  # before a line of its own after an empty one: code, in Markdown
_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟«»＂", "'") | {'"': "'"})  # noqa: RUF001
_ID = re.compile(r"(?<=\(#)[a-z0-9]{8}(?=\))|(?<=/api/questions/)[a-z0-9]{8}(?=/)")  # see question_of
_AGAIN: Final = {
    False: "Other things were said since I asked, so I ask again.",
    True: "我问过之后又说了别的事，所以再问一次。",  # noqa: RUF001 - Chinese
}


def call_to_json(call: ToolCall, spec: ToolSpec) -> dict[str, Any]:
    """Return a call as a question stores it, with its version, and in the server's words if the tool has some."""
    asked = {"id": call.id, "name": call.name, "arguments": call.arguments}
    said = spec.in_words(call.arguments)
    words = {"words": _visible(said.words)[:LONGEST_WORDS], "says_all": said.says_all} if said.words else {}
    return asked | {"version": _version(spec, said)} | words


def version_of_call(spec: ToolSpec, arguments: dict[str, Any]) -> str:
    """Return a text that changes with the tool, and with what the call is about."""
    return _version(spec, spec.in_words(arguments))


def _version(spec: ToolSpec, said: CallInWords) -> str:
    return ":".join(filter(None, (version_of([spec]), said.state)))


def is_the_call(asked: Mapping[str, Any], call: ToolCall, spec: ToolSpec) -> bool:
    """Whether this is the call of the question, and neither its tool nor what it is about has changed since."""
    wanted = ToolCall(id="", name=asked["name"], arguments=asked["arguments"])
    return intent(wanted) == intent(call) and asked.get("version") == version_of_call(spec, call.arguments)


def quoted(name: str) -> str:
    """Return a stored name in quotation marks, which it cannot close, on one line and not longer than needed."""
    inside = " ".join(name.translate(_QUOTES).split())
    return f"“{inside if len(inside) <= LONGEST_NAME else f'{inside[: LONGEST_NAME - 1]}…'}”"


def question_of(
    calls: Sequence[Mapping[str, Any]], *, question_id: str, like: str, again: bool = False, until: str = ""
) -> str:
    """Return the question in the language of `like`. `again`: it was asked before, and other messages followed.

    `until`: a scheduled turn asks, so the answer must name the question, and counts until this time.

    Each call is one line, after one in words if there are some, that a client which renders Markdown shows to the
    letter, whatever the answer above ends with.
    """
    chinese = phrases.is_chinese(like)
    link = f"/api/questions/{question_id}/"
    shown = [
        _both(call, describe_call(call["name"], call["arguments"], link, chinese=chinese)) for call in calls
    ]
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
    return _visible(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _visible(text: str) -> str:
    return "".join(letter if is_visible(letter) else json.dumps(letter)[1:-1] for letter in text)


def _both(call: Mapping[str, Any], letter: str) -> str:
    """The call in words, if it has some, on a line of its own before the call to the letter."""
    return f"{call['words']}\n{_LITERAL}{letter}" if call.get("words") else letter


def describe_call(name: str, arguments: Mapping[str, Any], link: str, *, chinese: bool = False) -> str:
    """Describe a call: with all its arguments, or with their digest and a link, but never with a part of them."""
    shown = shown_value(arguments)
    if len(shown) <= LONGEST_IN_FULL:
        return f"{name}，参数 {shown}" if chinese else f"{name} with {shown}"  # noqa: RUF001 - Chinese
    digest, size = hashlib.sha256(shown.encode()).hexdigest(), f"{len(shown):,}"
    if chinese:
        return f"{name}，参数共 {size} 个字符（SHA-256 {digest}，全文见 {link}）"  # noqa: RUF001 - Chinese
    return f"{name} with {size} characters of arguments (SHA-256 {digest}, in full at {link})"
