"""Hints through a broker that answers late: people's go first, and none is sent long after it was of use."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from sessions_app import hints
from sessions_app.models import Session, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.worker.process import WorkerProcess
from tests.conftest import Person
from tests.fleet import until
from tests.proxy import Proxy

OTHERS = 500
_SENDS = f"""
import django, sys, uuid
django.setup()
from sessions_app import hints
hints.send([hints.Hint(session_id=uuid.UUID(int=0), lane="auto")])
hints.flush_hints(60.0)  # connected: from here on a hint waits for others only
hints.STALE_AFTER = float(sys.argv[1])
hints.send(hints.Hint(session_id=uuid.UUID(int=n), lane="auto") for n in range(1, {OTHERS}))
hints.send([hints.Hint(session_id=uuid.UUID(int=0), lane="turns")])
hints.flush_hints(60.0)
"""


@contextmanager
def sending(url: str, stale_after: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sends many automations' hints, and one of a person, to a broker whose answers come late."""
    proxy = Proxy(url, delay=0.1)
    environ = os.environ | {"CELERY_BROKER_URL": proxy.url, "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-c", _SENDS, str(stale_after)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        proxy.end()


def waiting(client: redis.Redis, lane: str) -> int:
    return sum(int(client.llen(name)) for name in client.keys(f"{lane}.*"))


@pytest.fixture
def queues(broker: str) -> Iterator[redis.Redis]:
    if not broker.startswith("redis"):
        pytest.skip("the proxy speaks to Redis")
    with redis.Redis.from_url(broker) as client:
        yield client
        client.flushdb()


@pytest.mark.full
@pytest.mark.rule("10.0")
def test_a_persons_hint_goes_first_and_hints_too_old_are_dropped(broker: str, queues: redis.Redis) -> None:
    with sending(broker, 1.0) as process:
        until(lambda: waiting(queues, "turns"), 60)
        assert waiting(queues, "auto") < OTHERS // 2
        said, _ = process.communicate(timeout=60)
        assert b"hints_dropped" in said
        assert waiting(queues, "auto") < OTHERS


def sent(queues: redis.Redis, session: Session, key: str | None = None, content: str = "hello") -> int:
    """Send a message to the session; returns how many hints it caused."""
    hints.flush_hints(5.0)
    before = waiting(queues, "turns")
    receive(session.pk, MessageInput(content=content, idempotency_key=key))
    hints.flush_hints(5.0)
    return waiting(queues, "turns") - before


@pytest.mark.rule("1.7")
def test_a_message_behind_another_one_sends_no_hint(
    queues: redis.Redis, person: Person, worker: WorkerProcess
) -> None:
    session, other = person.session(), person.session()
    assert [sent(queues, session), sent(queues, session)] == [1, 0]
    assert sent(queues, other) == 1, "another session waits for nobody"
    # a transaction may commit after the turns before it have ended
    assert sent(queues, session, key="k") == 1
    claimed = claim_next(session.pk, worker.id, auto_allowed=False)
    assert claimed is not None
    assert sent(queues, session) == 0, "two others wait, and the turn that runs looks for them"
    Turn.objects.filter(session=session, state=TurnState.QUEUED).delete()
    assert sent(queues, session) == 1, "the turn that runs may have looked already"
    Turn.objects.filter(session=session, state=TurnState.QUEUED).update(host=claimed)
    assert sent(queues, session) == 1, "nobody looks behind a message that was injected"
