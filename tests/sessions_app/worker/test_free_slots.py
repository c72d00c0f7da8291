"""A worker whose slots are all taken reads the next hint as soon as one is free."""

from __future__ import annotations

from itertools import pairwise

from sessions_app.models import Turn, TurnState
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until


def test_full_worker_takes_the_next_turn_at_once(fleet: Fleet, person: Person) -> None:
    turns = [receive(person.session().id, MessageInput(content="hello")) for _ in range(9)]
    fleet.worker(concurrency=1)
    done = Turn.objects.filter(pk__in=[turn.pk for turn in turns], state=TurnState.SUCCEEDED)
    until(lambda: done.count() == len(turns))
    starts = sorted(start for start in done.values_list("started_at", flat=True) if start is not None)
    waits = sorted((later - earlier).total_seconds() for earlier, later in pairwise(starts))
    assert waits[len(waits) // 2] < 0.5  # Celery's own loop would look again after a second
