"""Reads what a model provider said of an error: one line for the owner, without secrets and the request (rule 3.6)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from agent_core.llm.protocol import ModelCall
from agent_core.text.redact import HIDDEN, SHORTEST, redact, secrets_of

LONGEST_REASON: Final = 200  # characters of a provider's message that people see
_SHARED: Final = 12  # letters and digits in a row that a message shares with the request are not shown
_SHORTEST_SHARED: Final = 3  # of a text of the request, which is shorter than that
_DEEPEST: Final = 5  # levels of an error object
_LONG_TOKEN = re.compile(  # possibly a key
    r"(?<![\w*.+/=-])(?=[\w*.+/=-]*\d)(?=[\w*.+/=-]*[A-Za-z])[\w*.+/=-]{24,}"
)
_IDENTIFIER = re.compile(r"[A-Za-z][\w.-]{0,63}")
_HIDDEN_RUN = re.compile(r"\0+")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def causes(error: BaseException, depth: int = 12) -> Iterator[BaseException]:
    """The error, its causes and contexts, and the members of exception groups."""
    yield error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*inner, error.__cause__, error.__context__):
        if each is not None and depth:
            yield from causes(each, depth - 1)


def error_body(error: Exception) -> dict[str, Any]:
    """The error object in the response body; {} if there is none. Mistral's client keeps the body as text."""
    bodies = (getattr(each, "body", None) for each in causes(error))
    body: Any = next((each for each in bodies if each), None)
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            is_text = isinstance(body, str) and len(body) <= LONGEST_REASON and "<" not in body  # no page
            return {"message": body} if is_text else {}
    if isinstance(body, list) and body:  # Google
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}


def message_of(body: Any) -> str:
    """The text of an error object: its `message`, `detail` or `error`, or the first fault of a validation."""
    for _ in range(_DEEPEST):
        if isinstance(body, list) and body:
            body = body[0]
        if not isinstance(body, dict):
            break
        where = body.get("loc")
        if isinstance(where, list) and isinstance(body.get("msg"), str):
            return f"{body['msg']}: {'.'.join(map(str, where))}"
        body = body.get("message") or body.get("detail") or body.get("error")
    return body if isinstance(body, str) else ""


def provider_message(error: Exception, call: ModelCall | None, secrets: tuple[str, ...]) -> str:
    """One line of the provider's message, or else its error code; empty if there is neither."""
    if call is None:
        return ""
    body = error_body(error)
    message, code = message_of(body), body.get("code") or body.get("type")
    if message and not _hides_a_secret(message, secrets):
        line = one_line(message, LONGEST_REASON, secrets, call)
        if any(map(str.isalnum, line)):
            return line.rstrip(".")
    is_plain = isinstance(code, str) and _IDENTIFIER.fullmatch(code)
    return str(code) if is_plain and one_line(str(code), LONGEST_REASON, secrets, call) == code else ""


def one_line(text: str, longest: int, secrets: tuple[str, ...], call: ModelCall | None = None) -> str:
    """One line of printable characters, without secrets and without what it repeats of the call."""
    text = "".join(each if each.isprintable() else " " for each in text[: 20 * longest])
    line = _LONG_TOKEN.sub("***", redact(" ".join(text.split()), more=secrets))
    if call is not None:
        line = _without_repeats(line, call)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _hides_a_secret(text: str, more: tuple[str, ...]) -> bool:
    """Whether a text contains a secret with other characters in between, or percent-encoded."""
    secrets = (*secrets_of(os.environ), *more)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    said = _squeezed(unquote(text[: 20 * LONGEST_REASON]))
    return any(len(key) >= SHORTEST and key in said for key in map(_squeezed, secrets))


def _without_repeats(line: str, call: ModelCall) -> str:
    """Replace each piece that stands in the request, in any spelling, with an ellipsis.

    A short text of the request is replaced only where it stands as words of its own: "hi" is part of many words.
    """
    letters = [(letter, place) for place, each in enumerate(line) for letter in _squeezed(each)]
    said = "".join(letter for letter, _ in letters)
    pieces = {said[start : start + _SHARED] for start in range(len(said) - _SHARED + 1)}
    repeated: set[str] = set()
    for text in map(_squeezed, _texts(call)):
        if _SHORTEST_SHARED <= len(text) < _SHARED:
            repeated.add(text)
        else:
            repeated |= {piece for piece in pieces if piece in text}
    hidden: set[int] = set()
    for piece in repeated:
        for found in re.finditer(f"(?={re.escape(piece)})", said):
            first, last = letters[found.start()][1], letters[found.start() + len(piece) - 1][1]
            inside = line[max(first - 1, 0) : first] + line[last + 1 : last + 2]
            if len(piece) == _SHARED or not any(map(str.isalnum, inside)):
                hidden.update(range(first, last + 1))
    masked = "".join("\0" if place in hidden else each for place, each in enumerate(line))
    return _HIDDEN_RUN.sub("…", masked)


def _texts(call: ModelCall) -> Iterator[str]:
    yield call.system_prompt
    for entry in call.entries:
        yield entry.content
        for result in entry.results:
            yield result.output
        for asked in entry.calls:
            yield from (str(value) for value in asked.arguments.values())
    for tool in call.tools:
        yield tool.description


def _squeezed(text: str) -> str:
    return _NOT_ALPHANUMERIC.sub("", text).lower()
