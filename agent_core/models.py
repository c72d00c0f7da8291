"""Finds the language model of a name.

``offline`` needs no key and no network (see ``offline/model.py``). Other names are model strings of pydantic-ai, such
as ``openai-chat:NAME``, unless a plugin registers them.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_core.llm.protocol import Model
from agent_core.per_process import PerProcess


def _offline() -> Model:
    from agent_core.offline.model import OfflineModel

    return OfflineModel()


_factories: dict[str, Callable[[], Model]] = {"offline": _offline}
_models: dict[str, PerProcess[Model]] = {}


def register(name: str, factory: Callable[[], Model]) -> None:
    """Register a model under this name, in place of an earlier one."""
    _factories[name] = factory
    _models.pop(name, None)


def resolve(name: str) -> Model:
    """Return this process's model of this name, made on first use.

    Raises ModelNotConfigured if the name is unknown or a setting, such as a key, is missing.
    """
    return _models.setdefault(name, PerProcess()).get(lambda: _make(name))


def _make(name: str) -> Model:
    if name in _factories:
        return _factories[name]()
    # Imported late: it takes a second and 70 MB, which a server with the offline model does not need.
    from agent_core.llm.pydantic_ai import PydanticAiModel

    return PydanticAiModel(name)
