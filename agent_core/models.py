"""Which language model: a name becomes an object that streams replies.

``offline`` needs no key and no network (see ``offline.py``); anything else is a model string of
pydantic-ai, such as ``openai-chat:NAME``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent_core.types import Entry, ToolCall, ToolSpec, Usage


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

    Raises ModelRefused when the name or its settings (such as a missing key) are no good.
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
