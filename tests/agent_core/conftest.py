"""A model server for the whole run; the client is pointed at it."""

from collections.abc import Iterator

import pytest

from tests.model_server import ModelServer

KEY = "key-that-must-not-show-1234"


@pytest.fixture(scope="session", autouse=True)
def _no_connection_outlives_the_tests() -> None:
    """Takes the place of the one for tests with a database: here is none, not even Django."""


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model_server.reset()
    yield model_server
    model_server.release_all()
