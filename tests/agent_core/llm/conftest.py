"""What the tests of models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_core import connections


@pytest.fixture(autouse=True)
def reports() -> Iterator[list[tuple[str, str]]]:
    """What is reported of connections, which is not stored here."""
    found: list[tuple[str, str]] = []
    before = connections.hooks.report
    connections.hooks.report = lambda known, error: found.append((known.name, error))
    yield found
    connections.hooks.report = before
