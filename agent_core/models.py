"""Which language model: a name becomes an object that streams replies.

``offline`` needs no key and no network (see ``offline.py``); anything else is a model string of
pydantic-ai, such as ``openai-chat:NAME``. What a model says is made fit to be stored
(``clean_reply``): a database takes no NUL, no half character, no NaN.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent_core.types import Entry, ToolCall, ToolSpec, Usage

_DEEPEST = 50
_LONGEST_UNPARSED = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCall:
    """One request to a model. ``entries`` ends with what is to be answered."""

    system_prompt: str
    entries: tuple[Entry, ...]
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """A whole reply: its text (may be empty) and the calls it asks for."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(requests=1))


class Model(Protocol):
    """A language model. Its streams run on the process's loop thread only (``loop.py``)."""

    def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        """Yield pieces of text as they come, then exactly one ModelReply.

        Raises ModelUnavailable where asking again may help, ModelRefused where it does not.
        """


def _offline() -> Model:
    from agent_core.offline import OfflineModel

    return OfflineModel()


_factories: dict[str, Callable[[], Model]] = {"offline": _offline}
_models: dict[tuple[int, str], Model] = {}
_lock = threading.RLock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def register(name: str, factory: Callable[[], Model]) -> None:
    """Make a model of one's own known by this name; it replaces an earlier one."""
    with _lock:
        _factories[name] = factory
        _models.pop((os.getpid(), name), None)


def resolve(name: str) -> Model:
    """Return this process's model of this name, made on first use.

    Raises ModelNotConfigured when the name or its settings (such as a missing key) are no good.
    """
    key = (os.getpid(), name)  # connections must not be shared with the parent of a fork
    with _lock:
        if key not in _models:
            _models[key] = _make(name)
        return _models[key]


def _make(name: str) -> Model:
    if name in _factories:
        return _factories[name]()
    # Late: the import takes a second and 70 MB, which a server that runs offline need not pay.
    from agent_core.pydantic_ai_model import PydanticAiModel

    return PydanticAiModel(name)


def clean_text(text: str) -> str:
    """Return a text without NUL characters and lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def clean_reply(reply: ModelReply) -> ModelReply:
    """Return a reply that can be stored. Arguments that cannot be become ``unparsed``."""
    calls = tuple(_clean_call(call) for call in reply.calls)
    return replace(reply, text=clean_text(reply.text), calls=calls)


def _clean_call(call: ToolCall) -> ToolCall:
    named = replace(call, id=clean_text(call.id), name=clean_text(call.name))
    if call.unparsed is not None:
        return replace(named, unparsed=clean_text(call.unparsed)[:_LONGEST_UNPARSED])
    try:
        return replace(named, arguments=clean_value(call.arguments))
    except ValueError as error:
        return replace(named, arguments={}, unparsed=f"({error})")


def clean_value(value: Any, depth: int = 0) -> Any:
    """A JSON value that can be stored. ValueError for one that cannot be."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("NaN and Infinity are not JSON")
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, depth + 1) for item in value]
    return value


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Parse a call's arguments; None when they are no JSON object. Nothing at all is an empty one."""
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
