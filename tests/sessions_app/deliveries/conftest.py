"""A receiver that sessions may name."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sessions_app.deliveries.receivers import Receiver, http_receiver


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A web server that takes deliveries; sessions may name it; three attempts are made."""
    with http_receiver() as found:
        settings.RONDO_WEBHOOK_HOSTS = (found.host,)
        settings.RONDO_DELIVERY_RETRY_SECONDS = (1, 1)
        yield found
