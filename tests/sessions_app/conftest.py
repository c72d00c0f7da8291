"""A session of someone whose turns run in this process."""

import pytest

from sessions_app.models import Session
from tests.inside import Inside


@pytest.fixture
def session(inside: Inside) -> Session:
    """A conversation with the agent."""
    return inside.person.session()  # type: ignore[no-any-return]
