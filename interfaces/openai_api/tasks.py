"""Requests that front ends make for themselves: titles, tags, follow-ups. They are answered without a turn.

Only the whole shape of such a prompt is recognised, so that no person's message is taken for one: a single message that
begins with the task, says the JSON key of its output, and ends with the chat's history. The texts are searched, and not
matched by patterns, which take hours for a text that is made for that.
"""

from __future__ import annotations

import json

from sessions_app.single_line import one_line

LONGEST_TITLE = 60  # characters
EMPTY = {"tags": [], "follow_ups": [], "queries": [], "prompt": ""}
_TASK, _OUTPUT, _HISTORY, _END = "### Task:\n", "### Output:", "<chat_history>\n", "</chat_history>"
_AUTOCOMPLETE = f"{_TASK}You are an autocompletion system."
_TITLE_ONLY = tuple(  # LibreChat's `titleMethod: completion`
    f"{verb} a concise, 5-word-or-less title for the conversation, using its same language, with no punctuation."
    for verb in ("Please generate", "Provide")
)
_CONVERSATION = ("Conversation:", "<conversation>")
_PERSON = ("USER:", "User:", "Human:")


def answer_task(shown: tuple[tuple[str, str], ...], title: str) -> str | None:
    """Return the answer to a front end's own request; None for a person's message. `title`: of the chat, if it is
    known.
    """
    if len(shown) != 1:
        return None
    text = shown[0][1]
    if text.startswith(_TITLE_ONLY):
        history = _after_first(text, _CONVERSATION)
        return None if history is None else title or _title(history)
    if not text.startswith(_TASK):
        return None
    if _is_autocompletion(text):
        return json.dumps({"text": ""})
    output, history = _task(text)
    if '"title":' in output:
        return json.dumps({"title": title or _title(history)}, ensure_ascii=False)
    key = next((name for name in EMPTY if f'"{name}":' in output), None)
    return None if key is None else json.dumps({key: EMPTY[key]})


def _task(text: str) -> tuple[str, str]:
    """The description of the output, and the chat's history; both empty if the text has another shape."""
    output = text.find(_OUTPUT)
    history = text.find(_HISTORY, output)
    body = text.rstrip()
    begin, end = history + len(_HISTORY), len(body) - len(_END)
    described = text[output + len(_OUTPUT) : history]
    if output < 0 or history < 0 or end < begin or not body.endswith(_END) or not described[:1].isspace():
        return "", ""
    return described, text[begin:end]


def _is_autocompletion(text: str) -> bool:
    if not text.startswith(_AUTOCOMPLETE) or not text.rstrip().endswith("#### Output:"):
        return False
    begin = text.find("<chat_history>")
    return begin >= 0 and text.find(_END, begin) >= 0


def _after_first(text: str, marks: tuple[str, ...]) -> str | None:
    """The text after the first of these marks; None without one."""
    found = [(at, mark) for mark in marks if (at := text.find(mark)) >= 0]
    if not found:
        return None
    at, mark = min(found)
    return text[at + len(mark) :]


def _title(history: str) -> str:
    """The first thing that a person said, on one line."""
    said = history
    at = 0
    for line in history.splitlines(keepends=True):
        begun = line.lstrip()
        if begun.startswith(_PERSON):
            said = history[at + line.index(":") + 1 :].lstrip().partition("\n")[0]
            break
        at += len(line)
    return one_line(said.strip()[: 10 * LONGEST_TITLE], LONGEST_TITLE) or "Chat"
