"""A broker whose packets are dropped: workers notice, connect again, and hints arrive."""

from __future__ import annotations

import os

import pytest

from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.proxy import Proxy
from tests.talk import ended, say

pytestmark = pytest.mark.processes


def test_a_worker_recovers_from_a_silent_broker_within_30_seconds(fleet: Fleet, person: Person) -> None:
    proxy = Proxy(os.environ["CELERY_BROKER_URL"])
    fleet.worker(CELERY_BROKER_URL=proxy.url)
    session = person.session()
    say(session, "hello")

    assert proxy.silence(dropping=True) > 0
    turn = receive(session.pk, MessageInput(content="are you there?"))
    until(lambda: ended(turn), 30, "the worker has found its broker again")
