"""Finds the language model of a name.

``offline`` needs no key and no network (see ``offline/model.py``). ``CONNECTION:NAME`` is a model of one of the
connections that the caller gives. Other names are model strings of pydantic-ai, such as ``openai-chat:NAME``,
unless a plugin registers them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final

from agent_core.connections import Connection, connection_of
from agent_core.exceptions import ModelNotConfigured
from agent_core.llm.protocol import Model

MOST_CLIENTS: Final = 200  # that a process keeps; the one that was unused for longest goes


def _offline() -> Model:
    from agent_core.offline.model import OfflineModel

    return OfflineModel()


_factories: dict[str, Callable[[], Model]] = {"offline": _offline}


def register(name: str, factory: Callable[[], Model]) -> None:
    """Register a model under this name, in place of an earlier one."""
    _factories[name] = factory
    _registered.cache_clear()


def is_registered(name: str) -> bool:
    """Whether a model is registered under this name."""
    return name in _factories


def resolve(name: str, connections: tuple[Connection, ...] = ()) -> Model:
    """Return this process's model of this name, made on first use. `connections` are those that it may name.

    Raises ModelNotConfigured if the name is unknown, a setting, such as a key, is missing, or the connection may not
    call it.
    """
    connection, model = connection_of(name, connections)
    if connection is None:
        return _registered(os.getpid(), name) if name in _factories else _client(os.getpid(), name, None)
    if refusal := connection.refusal(model):
        raise ModelNotConfigured(refusal, reason=refusal[:1].upper() + refusal[1:])
    # the state of its last call is not part of how it is reached
    reached = replace(connection, error="", fault="", models=(), requests_per_minute=0)
    return _client(os.getpid(), model, reached)


@cache
def _registered(_process: int, name: str) -> Model:
    """A model of this process: it may belong to the process's event loop."""
    return _factories[name]()


@lru_cache(maxsize=MOST_CLIENTS)
def _client(_process: int, name: str, connection: Connection | None) -> Model:
    """A client of this process: it belongs to the process's event loop."""
    # imported late: it takes a second and 70 MB, which a server with the offline model does not need
    from agent_core.llm.pydantic_ai import PydanticAiModel

    return PydanticAiModel(name, connection)
