"""How fast workers empty a full queue: of no-op tasks, of chat turns and of automations' turns.

The workers are stopped (SIGSTOP) while the queue is filled.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from benchmarks import data, fleet
from benchmarks.fleet import Worker
from benchmarks.plugin import NOOP

Filled = Callable[[], None]  # called when the queue is full and the workers still stand


@contextmanager
def stopped(processes: Sequence[Worker]) -> Iterator[None]:
    """The workers stand still within the block."""
    _signal(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(processes, signal.SIGCONT)


def noops(processes: Sequence[Worker], count: int, filled: Filled = lambda: None) -> float:
    """No-op tasks per second."""
    from django.conf import settings

    from config.celery import app as current_app

    people = [name for name in settings.ALL_QUEUES if name.startswith("turns.")]
    with stopped(processes), current_app.producer_or_acquire() as producer:
        for number in range(count):
            current_app.send_task(
                NOOP,
                args=["00000000-0000-0000-0000-000000000000", "turns"],
                queue=people[number % len(people)],
                ignore_result=True,
                producer=producer,
            )
        filled()
        start = time.monotonic()
    fleet.until(lambda: fleet.waiting_hints() == 0, "the no-ops have run")
    return count / (time.monotonic() - start)


def chats(
    processes: Sequence[Worker], sessions: list[Any], each: int, filled: Filled = lambda: None
) -> float:
    """Turns per second of `each` messages to each session."""
    return _drain(processes, sessions, each, lambda: data.queue_messages(sessions, each), filled)


def automations(
    processes: Sequence[Worker], sessions: list[Any], each: int, filled: Filled = lambda: None
) -> float:
    """Turns per second of `each` automations of each session that are due at once, as beat fires them."""
    from benchmarks.beat import Beat

    def fire() -> None:
        data.make_due(data.jobs(sessions, len(sessions) * each))
        Beat().tick_all()

    return _drain(processes, sessions, each, fire, filled)


def _drain(
    processes: Sequence[Worker], sessions: list[Any], each: int, fill: Callable[[], None], filled: Filled
) -> float:
    from sessions_app import hints

    count = len(sessions) * each
    with stopped(processes):
        fill()
        hints.flush_hints(60.0)
        filled()
        start = datetime.now(UTC)
    fleet.until(lambda: data.count_succeeded(sessions) == count, f"{count} turns have run", every=0.1)
    seconds = (_last_finished(sessions) - start).total_seconds()
    fleet.until(lambda: fleet.waiting_hints() == 0, "the remaining hints are consumed")
    return count / seconds


def _last_finished(sessions: list[Any]) -> datetime:
    from django.db.models import Max

    from sessions_app.models import Turn

    last: datetime = Turn.objects.filter(session__in=sessions).aggregate(last=Max("finished_at"))["last"]
    return last


def _signal(processes: Sequence[Worker], number: int) -> None:
    for process in processes:
        process.signal(number)
