"""Read a request for a chat completion. Parameters that this server cannot serve are refused, unless it is harmless to
ignore them.

Front ends make requests for themselves: titles, tags, follow-ups. They are answered without a turn. Only the whole
shape of such a prompt is recognised, so that no person's message is taken for one: a single message that begins with
the task, says the JSON key of its output, and ends with the chat's history. The texts are searched, and not matched by
patterns, which take hours for a text that is made for that.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rest_framework.request import Request

from interfaces.http import headers
from sessions_app.exceptions import BadInput
from sessions_app.memory.files import MOST_FILES, GivenFile, image_in_url, note_of
from sessions_app.sessions.client_places import ClientHistory
from sessions_app.single_line import one_line

PROTOCOL = "openai"
CHAT_HEADERS = ("X-Rondo-Chat-Id", "X-OpenWebUI-Chat-Id", "X-Conversation-Id")
CHAT_FIELDS = ("chat_id", "session_id", "conversation_id")  # of `metadata`
NO_IDS = {"new", "null", "none", "undefined"}  # what front ends send before a chat has an id
MOST_MESSAGES = 2_000
LONGEST_TOOL_TEXT = 4_000  # characters of a tool's result, or of the calls of a message
LONGEST_ID = 500  # characters of an id of a chat or an end user
AGENTS_OWN = "the agent calls its own tools only, so it cannot be made to call one of the client's"
SAID = {"user", "assistant"}
ROLES = {"system", "developer", "tool", *SAID}
# what Open WebUI writes before a message with images, which names files that only it can read
_ATTACHED = re.compile(r"\A<attached_files>\n.*?</attached_files>\s*", re.DOTALL)
# values that ask for nothing, by field; any other value would be a promise that is not kept
HARMLESS: dict[str, tuple[Any, ...]] = {
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "n": (1,),
    "stop": ([], ""),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
}


class BadParam(BadInput):
    """A field of the request has a value that is not served; `param` names it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message, code="unsupported_value", param=param)


@dataclass(frozen=True, kw_only=True)
class CompletionRequest:
    """A valid request. `history`: with marks for images, without the client's instructions; `shown`: roles and texts of
    all messages.
    """

    model: str
    history: ClientHistory
    shown: tuple[tuple[str, str], ...]
    streams: bool
    with_usage: bool


def read_request(request: Request) -> CompletionRequest:
    """The request, validated. BadParam, BadInput."""
    data = request.data
    if not isinstance(data, Mapping):
        raise BadParam("body", "a JSON object is expected")
    _refuse_unserved(data)
    messages = _messages(data.get("messages"))
    if messages[-1].role != "user":
        raise BadParam("messages", "the last message must be one of the role `user`")
    options = data.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise BadParam("stream_options", "`stream_options` must be an object")
    model = _text(data, "model", required=True)
    history = ClientHistory(
        protocol=PROTOCOL,
        said=tuple(each.marked for each in messages if each.role == "user"),
        text=messages[-1].text,
        images=_images(messages[-1], len(messages) - 1),
        before=tuple((each.role, each.noted) for each in messages[:-1] if each.role in SAID),
        heard=next((each.text for each in reversed(messages) if each.role == "assistant"), ""),
        key=_chat_key(request, data),
        end_user=_text(data, "user"),
        repeats=request.headers.get("X-Stainless-Retry-Count", "0") not in {"", "0"},
        request_key=headers.idempotency_key(request) or "",
    )
    return CompletionRequest(
        model=model,
        history=history,
        shown=tuple((each.role, each.text) for each in messages),
        streams=_flag(data, "stream"),
        with_usage=_flag(options, "include_usage"),
    )


def _refuse_unserved(data: Mapping[str, Any]) -> None:
    for name, harmless in HARMLESS.items():
        value = data.get(name)
        if value is not None and not any(type(value) is type(each) and value == each for each in harmless):
            reason = AGENTS_OWN if name in {"tool_choice", "function_call"} else "leave it out"
            raise BadParam(name, f"`{name}` is not supported with this value: {reason}")


@dataclass(frozen=True, kw_only=True)
class _Message:
    """A message; `urls`: of its images."""

    role: str
    text: str
    urls: tuple[str, ...] = ()

    @property
    def noted(self) -> str:
        """The text with a note of its images."""
        return "\n\n".join(each for each in (self.text, note_of(len(self.urls), 0)) if each.strip())

    @property
    def marked(self) -> str:
        """The text with a mark for each image, which no text can have."""
        marks = (f"\x00{hashlib.sha256(url.encode()).hexdigest()}" for url in self.urls)
        return "".join((self.text, *marks))


def _images(message: _Message, number: int) -> tuple[GivenFile, ...]:
    """The images of the new message. Those of earlier messages are stored already."""
    where = f"messages[{number}].content"
    if len(message.urls) > MOST_FILES:
        raise BadParam(where, f"a message may have at most {MOST_FILES} images")
    try:
        return tuple(image_in_url(url) for url in message.urls)
    except BadInput as error:
        raise BadParam(where, str(error)) from None


def _messages(given: Any) -> tuple[_Message, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_MESSAGES:
        raise BadParam("messages", f"`messages` must be a list of 1 to {MOST_MESSAGES:,} messages")
    return tuple(_message(each, f"messages[{number}]") for number, each in enumerate(given))


def _message(given: Any, where: str) -> _Message:
    role = given.get("role") if isinstance(given, Mapping) else None
    if not isinstance(role, str) or role not in ROLES:
        raise BadParam(f"{where}.role", f"`role` must be one of {', '.join(sorted(ROLES))}")
    content = given.get("content")
    if content is None and role == "assistant":
        content = given.get("refusal") or ""
    if isinstance(content, str):
        message = _Message(role=role, text=content)
    elif isinstance(content, list):
        message = _of_parts(role, content, f"{where}.content")
    else:
        raise BadParam(f"{where}.content", "`content` must be a text or a list of parts")
    if role == "tool":  # of the client's own tools, for a chat that began elsewhere
        text = f"[Result of {_text(given, 'tool_call_id') or 'a call'}: {message.text}]"
        return _Message(role="assistant", text=_shortened(text))
    if role == "assistant" and (calls := given.get("tool_calls")):
        return replace(message, text=f"{message.text}\n{_shortened(_as_text(calls, where))}".strip())
    return message


def _as_text(calls: Any, where: str) -> str:
    """The calls of the client's own tools, as text."""
    lines = []
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not (isinstance(call, Mapping) and isinstance(function, Mapping)):
            raise BadParam(f"{where}.tool_calls", "`tool_calls` must be a list of calls of functions")
        named = f"{_text(function, 'name', required=True)} ({_text(call, 'id')})"
        lines.append(f"[Called {named} with {function.get('arguments') or ''}]")
    return "\n".join(lines)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TOOL_TEXT else f"{text[: LONGEST_TOOL_TEXT - 2]}…]"


def _of_parts(role: str, parts: list[Any], where: str) -> _Message:
    """A message of parts. Its texts are joined as the model of OpenAI reads them: one after the other."""
    texts, urls = [], []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "refusal" and role == "assistant" and isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
        elif kind == "image_url" and role == "user":
            urls.append(_url(part.get("image_url"), where))
        else:
            taken = "`text` and `image_url`" if role == "user" else "`text`"
            raise BadParam(where, f"only parts of the type {taken} are supported, not {str(kind)[:40]!r}")
    text = "\n".join(texts)
    return _Message(role=role, text=_ATTACHED.sub("", text) if urls else text, urls=tuple(urls))


def _url(given: Any, where: str) -> str:
    url = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(url, str):
        raise BadParam(where, "`image_url.url` must be a text")
    return url


def _chat_key(request: Request, data: Mapping[str, Any]) -> str:
    """The id of the chat with its source: a header, else a field of `metadata`. Empty without one."""
    for name in CHAT_HEADERS:
        value = request.headers.get(name, "").strip()
        if value and value.lower() not in NO_IDS and not value.startswith("{{"):
            return f"header:{_bounded(name, value)}"
    metadata = data.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise BadParam("metadata", "`metadata` must be an object")
    for name in CHAT_FIELDS:
        if value := _text(metadata, name):
            return f"{name}:{value}"
    return ""


def _text(data: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    value = data.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise BadParam(name, f"`{name}` must be a text")
    return _bounded(name, value)


def _bounded(name: str, value: str) -> str:
    if len(value) > LONGEST_ID:
        raise BadParam(name, f"`{name}` may have at most {LONGEST_ID} characters")
    return value


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadParam(name, f"`{name}` must be true or false")
    return bool(value)


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
