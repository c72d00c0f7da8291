"""What the tests of models share."""

import pytest

from agent_core import connections


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is reported of connections, which is not stored here."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(connections.hooks, "report", lambda known, error: found.append((known.name, error)))
    return found
