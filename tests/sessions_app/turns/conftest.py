"""What the tests of turns share."""

import pytest

from tests.inside import Inside


@pytest.fixture
def planner(inside: Inside) -> Inside:
    """Someone whose agent plans."""
    inside.planner()
    return inside
