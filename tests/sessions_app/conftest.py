"""A session of someone whose turns run in this process, and an MCP server."""

from collections.abc import Iterator

import pytest

from sessions_app.models import Session
from tests.inside import Inside
from tests.mcp_servers import Docs


@pytest.fixture
def session(inside: Inside) -> Session:
    """A conversation with the agent."""
    return inside.person.session()  # type: ignore[no-any-return]


@pytest.fixture
def docs() -> Iterator[Docs]:
    """An MCP server."""
    server = Docs()
    with server.serving() as url:
        server.url = url
        yield server
