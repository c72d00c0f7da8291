"""The cost of a claim beside a long queue, and of the context of a session with a long history."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any

from benchmarks import data
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET = 1.2
SHORT = 100  # messages, the maximum in a context (sessions_app.memory.history)
LONG = 1_000


def run(_servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure both, alternating between the small and the large case."""
    agent = data.person(MODEL)
    return [*_measure_claims(agent, sizes, say), *_measure_contexts(agent, sizes, say)]


def _measure_claims(agent: Any, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    from sessions_app.models import Turn

    (busy,) = data.sessions(agent, 1)
    alone, beside = [], []
    for _ in range(max(2, sizes.rounds)):
        data.settle()
        alone += _time_claims(data.sessions(agent, sizes.claims))
        data.queue_rows(busy, sizes.backlog)
        data.settle()
        beside += _time_claims(data.sessions(agent, sizes.claims))
        Turn.objects.filter(session=busy).delete()
    without, with_backlog = statistics.median(alone), statistics.median(beside)
    say(f"a claim {without:.2f} ms, beside {sizes.backlog:,} queued rows {with_backlog:.2f} ms")
    return [
        Figure(
            name=f"claim beside {sizes.backlog:,} queued rows to none",
            value=with_backlog / without,
            at_most=TARGET,
            note=f"{with_backlog:.2f} ms to {without:.2f} ms: claim and search for more work",
        )
    ]


def _time_claims(sessions: list[Any]) -> list[float]:
    """Milliseconds of each claim with the following search for more work. The turns end: a user has only so many."""
    from django.db.models.functions import Now

    from sessions_app.models import Turn, TurnState
    from sessions_app.turns.claim import claim_next
    from sessions_app.turns.next_lane import next_lane

    worker, times = uuid.uuid4(), []
    for session in sessions:
        data.queue_rows(session, 1)
    for session in sessions:
        start = time.perf_counter()
        turn = claim_next(session.id, worker, auto_allowed=False)
        next_lane(session.id)
        times.append((time.perf_counter() - start) * 1000)
        assert turn is not None
        assert turn.session_id == session.id
        Turn.objects.filter(pk=turn.pk).update(state=TurnState.SUCCEEDED, finished_at=Now())
    return times


def _measure_contexts(agent: Any, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    lengths = (SHORT, LONG, sizes.history)
    sessions = dict(zip(lengths, data.sessions(agent, 3), strict=True))
    for length, session in sessions.items():
        data.history(session, length)
        data.queue_rows(session, 1)
    data.settle()
    times: dict[int, list[float]] = {length: [] for length in lengths}
    for _ in range(sizes.contexts):
        for length in lengths:
            times[length].append(_time_context(sessions[length]))
    cost = {length: statistics.median(times[length]) for length in lengths}
    say(", ".join(f"context of {length:,} messages {cost[length]:.2f} ms" for length in lengths))
    return [
        Figure(
            name=f"context of {length:,} messages to {SHORT}",
            value=cost[length] / cost[SHORT],
            at_most=TARGET,
            note=f"{cost[length]:.2f} ms to {cost[SHORT]:.2f} ms, {SHORT} shown",
        )
        for length in (LONG, sizes.history)
    ]


def _time_context(session: Any) -> float:
    """Milliseconds to claim a turn and prepare its context; both are rolled back."""
    from django.db import transaction

    from sessions_app.journal import Journal
    from sessions_app.turns.claim import claim_next
    from sessions_app.turns.context import prepare_turn

    with transaction.atomic():
        start = time.perf_counter()
        turn = claim_next(session.id, uuid.uuid4(), auto_allowed=False)
        assert turn is not None
        prepared = prepare_turn(turn, Journal(turn))
        elapsed = (time.perf_counter() - start) * 1000
        transaction.set_rollback(True)
    assert len(prepared.request.history) == SHORT
    return elapsed
