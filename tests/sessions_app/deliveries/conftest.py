"""Receivers, and workers that may reach them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet import Fleet
from tests.sessions_app.deliveries.receivers import Receiver, http_receiver


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A web server that takes deliveries; sessions may name it; three attempts are made."""
    with http_receiver() as found:
        settings.RONDO_WEBHOOK_HOSTS = (found.host,)
        settings.RONDO_DELIVERY_RETRY_SECONDS = (1, 1)
        yield found


@pytest.fixture
def post(fleet: Fleet, receiver: Receiver) -> Iterator[Fleet]:
    """Processes that may send to the receiver, and try again after a second."""
    fleet.environ |= {
        "RONDO_WEBHOOK_HOSTS": receiver.host,
        "RONDO_DELIVERY_SECONDS": "1",
        "RONDO_DELIVERY_RETRY_SECONDS": "1,1",
    }
    yield fleet
    receiver.released.set()
