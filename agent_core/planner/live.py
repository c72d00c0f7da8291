"""Live state: data that can change outside the conversation is read before each plan, never remembered (rule 7.5).

A kind is read in full if the request mentions one of its words. What a conversation has is also shown if the request
does not mention it, up to LONGEST_UNASKED characters. To register a provider:
``live.register(LiveState(name="orders", words=("order", "订单"), read=lambda context: …))``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_core.exceptions import AgentCoreError
from agent_core.execution import Observation
from agent_core.text import phrases

log = logging.getLogger(__name__)

LONGEST = 4000  # characters of one snapshot
LONGEST_UNASKED = 1500  # characters of one whose kind the request does not mention
Lister = Callable[[Any], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveState:
    """A kind of live state. ``words``: a request that contains one of them, in any language, is about this kind.

    ``read(context)`` returns a snapshot as text, one item per line; it gets the context that tools get. ``things``: the
    words that mean nothing but this kind, by default all of ``words``. Sentences that only report their state are
    not stored in memory, because they would soon be wrong.
    """

    name: str
    words: tuple[str, ...]
    read: Callable[[Any], str]
    things: tuple[str, ...] = ()


_PROVIDERS: dict[str, LiveState] = {}
_LISTERS: list[Lister] = []


def register(provider: LiveState) -> None:
    """Register a kind of live state. Raises AgentCoreError if there is another one of that name."""
    if _PROVIDERS.setdefault(provider.name, provider) != provider:
        raise AgentCoreError(f"Another kind of live state is already named {provider.name!r}.")


def unregister(name: str) -> None:
    """Remove a kind, if it is registered."""
    _PROVIDERS.pop(name, None)


def kinds_mentioned(text: str) -> tuple[str, ...]:
    """Return the kinds that a text mentions."""
    return tuple(name for name, each in sorted(_PROVIDERS.items()) if phrases.contains_any(text, each.words))


def register_lister(lister: Lister) -> None:
    """Register a function that returns the kinds of which a conversation has something, given a tool's context."""
    if lister not in _LISTERS:
        _LISTERS.append(lister)


def kinds_present(context: Any) -> tuple[str, ...]:
    """Return the kinds of which this conversation has something. They are always shown."""
    return tuple(name for lister in _LISTERS for name in lister(context) if name in _PROVIDERS)


def read_snapshot(name: str, context: Any, longest: int = LONGEST) -> Observation:
    """Read the current state of a kind. An error becomes the text, so that the plan does not rely on it."""
    try:
        text = _PROVIDERS[name].read(context).strip() or "(none)"
    except Exception as error:  # a provider may raise anything, and its message may contain anything
        log.exception("live_state_failed", extra={"kind": name})
        text = f"(cannot be read now: {type(error).__name__})"
    return Observation(kind=f"live:{name}", text=_bounded(text, longest))


def all_words() -> tuple[str, ...]:
    """Return the words of all kinds."""
    return tuple(word for each in _PROVIDERS.values() for word in each.words)


def all_things() -> tuple[str, ...]:
    """Return the words of all kinds that mean nothing but live state."""
    return tuple(word for each in _PROVIDERS.values() for word in each.things or each.words)


def _bounded(text: str, longest: int) -> str:
    """The lines that fit, and the number of the others."""
    if len(text) <= longest:
        return text
    kept = text[:longest].rpartition("\n")[0] or text[:longest]
    return f"{kept}\n(cut: {text.count(chr(10)) - kept.count(chr(10))} more lines; a tool lists all)"
