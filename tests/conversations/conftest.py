"""A stage in this process: a person with an agent, and a worker that runs one turn after the other."""

from collections.abc import Iterator

import pytest

from agent_core import tools
from sessions_app.models import Agent
from tests.conftest import new_person
from tests.conversations.stage import ZONE
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


def agent_of(model: str) -> Agent:
    """An agent with its heartbeat and its dream."""
    agent = new_person("ada", dreams=True, model=model, timezone=ZONE).agent
    assert isinstance(agent, Agent)
    return agent
