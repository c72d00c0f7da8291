"""A running server that is watched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import start_web
from tests.config.operations.watching import Watched
from tests.fleet import QUICK, Fleet
from tests.model_server import ModelServer
from tests.sessions_app.deliveries.receivers import http_receiver


@pytest.fixture
def watched(fleet: Fleet, model_server: ModelServer, settings: Any, tmp_path: Path) -> Iterator[Watched]:
    """A web process, and what its fleet needs to send to a receiver. No worker, no beat."""
    with http_receiver() as receiver:
        settings.RONDO_WEBHOOK_HOSTS = (receiver.host,)
        fleet.environ |= {"RONDO_WEBHOOK_HOSTS": receiver.host, "RONDO_DELIVERY_RETRY_SECONDS": "1,1,1,1,1"}
        url, web = start_web(tmp_path, **QUICK)
        fleet.processes.append(web)
        yield Watched(url=url, fleet=fleet, receiver=receiver)
