"""A stage in this process: a person with an agent, and a worker that runs one turn after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_core import tools
from sessions_app.models import Agent
from sessions_app.worker.process import WorkerProcess
from tests.conftest import new_person
from tests.conversations.stage import ZONE, Stage
from tests.model_server import ModelServer


@pytest.fixture(scope="module")
def scripted() -> Iterator[ModelServer]:
    """A model over HTTP that follows a script; its client is made once for each process, by the model's name."""
    with ModelServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _only_tools_of_the_apps() -> Iterator[None]:
    """Other tests of the same process may have registered tools of their own."""
    others = [tool for tool in tools.all() if tool.run.__module__.startswith("tests")]
    for tool in others:
        tools.unregister(tool.name)
    yield
    for tool in others:
        tools.register(tool)


@pytest.fixture
def stage(scripted: ModelServer, worker: WorkerProcess, monkeypatch: Any, request: Any) -> Stage:
    """Played by a script; the model has the name of the test's module."""
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    scripted.reset()
    agent = agent_of(f"openai-chat:{request.module.__name__.rpartition('test_')[2]}")
    return Stage(agent=agent, worker=worker, server=scripted)


def agent_of(model: str) -> Agent:
    """An agent with its heartbeat and its dream."""
    agent = new_person("ada", dreams=True, model=model, timezone=ZONE).agent
    assert isinstance(agent, Agent)
    return agent
