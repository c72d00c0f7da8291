"""Finds the language model of a name.

``offline`` needs no key and no network (see ``offline/model.py``). ``CONNECTION:NAME`` is a model of one of the
connections that the caller gives. Other names are model strings of pydantic-ai, such as ``openai-chat:NAME``,
unless a plugin registers them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from agent_core.connections import Connection, connection_of
from agent_core.exceptions import ModelNotConfigured
from agent_core.llm.protocol import Model
from agent_core.process import PerProcess


def _offline() -> Model:
    from agent_core.offline.model import OfflineModel

    return OfflineModel()


_factories: dict[str, Callable[[], Model]] = {"offline": _offline}
_models: dict[str, PerProcess[Model]] = {}
MOST_CLIENTS: Final = 200  # of connections; the one that was unused for longest goes
_clients: PerProcess[OrderedDict[tuple[Connection, str], Model]] = PerProcess()


def register(name: str, factory: Callable[[], Model]) -> None:
    """Register a model under this name, in place of an earlier one."""
    _factories[name] = factory
    _models.pop(name, None)


def is_registered(name: str) -> bool:
    """Whether the name is that of a model by itself, not of a provider's or a connection's."""
    return name in _factories


def resolve(name: str, connections: tuple[Connection, ...] = ()) -> Model:
    """Return this process's model of this name, made on first use. `connections` are those that it may name.

    Raises ModelNotConfigured if the name is unknown, a setting, such as a key, is missing, or the connection may not
    call it.
    """
    connection, model = connection_of(name, connections)
    if connection is not None:
        return _of_connection(connection, model)
    return _models.setdefault(name, PerProcess()).get(lambda: _make(name))


def _of_connection(connection: Connection, model: str) -> Model:
    if refusal := connection.refusal(model):
        raise ModelNotConfigured(refusal, reason=refusal[:1].upper() + refusal[1:])
    clients = _clients.get(OrderedDict)
    # the state of its last call is not part of how it is reached
    key = (replace(connection, error="", fault="", models=(), requests_per_minute=0), model)
    found = clients.pop(key, None)
    if found is None:
        from agent_core.llm.pydantic_ai import PydanticAiModel

        found = PydanticAiModel(model, connection)
    clients[key] = found
    while len(clients) > MOST_CLIENTS:
        clients.popitem(last=False)
    return found


def _make(name: str) -> Model:
    if name in _factories:
        return _factories[name]()
    # Imported late: it takes a second and 70 MB, which a server with the offline model does not need.
    from agent_core.llm.pydantic_ai import PydanticAiModel

    return PydanticAiModel(name)
