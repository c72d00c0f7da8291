"""A conversation of the person whose agent's turns run in this process."""

import pytest

from sessions_app.models import Session
from tests.inside import Inside


@pytest.fixture
def session(inside: Inside) -> Session:
    """A new conversation."""
    return inside.person.session()  # type: ignore[no-any-return]
