"""What the tests of turns share."""

from __future__ import annotations

import pytest

from tests.inside import Inside


@pytest.fixture
def planner(inside: Inside) -> Inside:
    """Someone whose agent plans."""
    inside.planner()
    return inside
