"""A worker whose slots are all taken reads the next hint as soon as one is free, and stores none in the broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
import redis
from django.conf import settings

from sessions_app import hints
from sessions_app.models import Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("1.7")


def test_full_worker_takes_the_next_turn_at_once(fleet: Fleet, person: Person) -> None:
    turns = [receive(person.session().id, MessageInput(content="hello")) for _ in range(9)]
    fleet.worker(concurrency=1)
    done = Turn.objects.filter(pk__in=[turn.pk for turn in turns], state=TurnState.SUCCEEDED)
    until(lambda: done.count() == len(turns))
    starts = sorted(start for start in done.values_list("started_at", flat=True) if start is not None)
    waits = sorted((later - earlier).total_seconds() for earlier, later in pairwise(starts))
    assert waits[len(waits) // 2] < 0.5  # Celery's own loop would look again after a second


def _copies(client: redis.Redis) -> int:
    """How often the server has stored a message until it is acknowledged: kombu adds it to a sorted set."""
    calls: int = client.info("commandstats").get("cmdstat_zadd", {}).get("calls", 0)
    return calls


def test_a_full_worker_leaves_hints_in_the_broker_and_stores_none_that_it_took(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, broker: str
) -> None:
    if not broker.startswith("redis"):
        pytest.skip("RabbitMQ keeps messages until they are acknowledged by itself")
    fleet.worker(concurrency=1)
    with redis.Redis.from_url(broker) as client:
        copies = _copies(client)
        message = MessageInput(content="[[hold:all]]hello")
        turns = [receive(person_with_server.session().id, message) for _ in range(3)]
        until(lambda: model_server.held.get("all"))
        hints.flush_hints(5.0)
        names = [name for name in settings.ALL_QUEUES if client.type(name) == b"list"]
        assert sum(int(client.llen(name)) for name in names) == 2
        assert _copies(client) == copies
    model_server.release("all")
    done = Turn.objects.filter(pk__in=[turn.pk for turn in turns], state=TurnState.SUCCEEDED)
    until(lambda: done.count() == len(turns))
