"""Turns per second with an instant model, compared to no-op Celery tasks on the same broker and workers.

The workers are stopped (SIGSTOP) while the queue is filled, so that both start with a full queue.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks import data, fleet
from benchmarks.fleet import Worker
from benchmarks.plugin import MODEL, NOOP
from benchmarks.processor import processor_seconds
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

TARGET = 0.33


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Alternate both for `rounds` rounds, after a warm-up."""
    agent = data.person(MODEL)
    count = sizes.sessions * sizes.messages
    noops, turns, costs = [], [], []
    with fleet.workers(servers.folder, sizes.workers, sizes.concurrency) as processes:
        _run_noops(processes, min(count, 200))
        _run_turns(processes, data.sessions(agent, min(sizes.sessions, 20)), 2)
        for number in range(1, sizes.rounds + 1):
            noops.append(_run_noops(processes, count))
            before = _processor_seconds(servers, processes)
            turns.append(_run_turns(processes, data.sessions(agent, sizes.sessions), sizes.messages))
            after = _processor_seconds(servers, processes)
            costs.append([(end - start) * 1000 / count for start, end in zip(before, after, strict=True)])
            say(f"round {number}: {noops[-1]:.0f} no-ops/s, {turns[-1]:.0f} turns/s")
    setting = f"-P threads -c {sizes.concurrency}, {sizes.workers} worker(s)"
    load = f"{sizes.sessions} sessions, {sizes.messages} messages each"
    ratio = statistics.median(turn / noop for turn, noop in zip(turns, noops, strict=True))
    return [
        Figure(name="no-op tasks", value=statistics.median(noops), unit="/s", note=setting),
        Figure(name="turns, instant model", value=statistics.median(turns), unit="/s", note=load),
        Figure(name="turns to no-op tasks", value=ratio, at_least=TARGET),
        *(
            Figure(name=f"processor time per turn, {name}", value=statistics.median(values), unit="ms")
            for name, values in zip(("workers", "PostgreSQL"), zip(*costs, strict=True), strict=False)
        ),
    ]


def _processor_seconds(servers: Servers, processes: list[Worker]) -> list[float]:
    """Of the workers and, if it is the embedded one, of PostgreSQL."""
    workers = sum(processor_seconds(process.child.pid) for process in processes)
    return [workers] + ([processor_seconds(servers.postgres_pid)] if servers.postgres_pid else [])


def _run_noops(processes: list[Worker], count: int) -> float:
    from config.celery import app as current_app
    from sessions_app.hints import shard_queues

    people = [name for name in shard_queues() if name.startswith("turns.")]
    _signal(processes, signal.SIGSTOP)
    with current_app.producer_or_acquire() as producer:
        for number in range(count):
            current_app.send_task(
                NOOP,
                args=["00000000-0000-0000-0000-000000000000", "turns"],
                queue=people[number % len(people)],
                ignore_result=True,
                producer=producer,
            )
    start = time.monotonic()
    _signal(processes, signal.SIGCONT)
    fleet.until(lambda: fleet.waiting_hints() == 0, "the no-ops have run")
    return count / (time.monotonic() - start)


def _run_turns(processes: list[Worker], sessions: list[Any], each: int) -> float:
    from sessions_app import hints

    _signal(processes, signal.SIGSTOP)
    data.queue_messages(sessions, each)
    hints.flush_hints(60.0)
    start = datetime.now(UTC)
    _signal(processes, signal.SIGCONT)
    fleet.until(
        lambda: data.count_succeeded(sessions) == len(sessions) * each, "the turns have run", every=0.1
    )
    seconds = (_last_finished(sessions) - start).total_seconds()
    fleet.until(lambda: fleet.waiting_hints() == 0, "the remaining hints are consumed")
    return len(sessions) * each / seconds


def _last_finished(sessions: list[Any]) -> datetime:
    from django.db.models import Max

    from sessions_app.models import Turn

    last: datetime = Turn.objects.filter(session__in=sessions).aggregate(last=Max("finished_at"))["last"]
    return last


def _signal(processes: list[Worker], number: int) -> None:
    for process in processes:
        process.signal(number)
