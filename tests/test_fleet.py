"""Workers of the tests start quickly."""

from __future__ import annotations

import pytest

from tests import warm
from tests.fleet import Fleet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def test_a_worker_with_the_usual_settings_is_forked_with_the_apps_loaded(fleet: Fleet) -> None:
    """Nothing in this process has changed its environment for good: every later worker would start the long way."""
    assert isinstance(fleet.worker().child, warm._LoadedChild)
    assert not isinstance(fleet.worker(RONDO_TOOL_GRACE_SECONDS="5").child, warm._LoadedChild)
