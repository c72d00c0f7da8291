"""Live state: what can change outside the conversation is read anew before each plan, never remembered (rule 7.5).

A provider is registered in one line:
``live.register(LiveState(name="orders", words=("order", "订单"), read=lambda context: …))``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_core import words
from agent_core.exceptions import AgentCoreError
from agent_core.execution import Observation

LONGEST = 4000  # characters of one snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveState:
    """A kind of state that lives elsewhere. ``words``: those by which a request is about it, in any language.

    ``read(context)`` returns its snapshot as text; the context is that of a tool.
    """

    name: str
    words: tuple[str, ...]
    read: Callable[[Any], str]


_PROVIDERS: dict[str, LiveState] = {}


def register(provider: LiveState) -> None:
    """Make a kind of live state known. AgentCoreError when there is another one of that name."""
    if _PROVIDERS.setdefault(provider.name, provider) != provider:
        raise AgentCoreError(f"There is another kind of live state named {provider.name}.")


def unregister(name: str) -> None:
    """Forget one, if it is known."""
    _PROVIDERS.pop(name, None)


def concerned(text: str) -> tuple[str, ...]:
    """The kinds that a text is about."""
    return tuple(name for name, each in sorted(_PROVIDERS.items()) if words.holds(text, each.words))


def snapshot(name: str, context: Any) -> Observation:
    """What this kind looks like now. An error is part of the picture: the plan must know that it does not know."""
    try:
        text = _PROVIDERS[name].read(context).strip() or "(none)"
    except Exception as error:  # noqa: BLE001 - whatever a provider raises; its text may hold anything
        text = f"(cannot be read now: {type(error).__name__})"
    return Observation(kind=f"live:{name}", text=text[:LONGEST])


def all_words() -> tuple[str, ...]:
    """The words by which live state of any kind is spoken of."""
    return tuple(word for each in _PROVIDERS.values() for word in each.words)
