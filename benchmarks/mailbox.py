"""Deposits per second, by one thread and by many; drains per second: a turn reads updates and acknowledges them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import data
from benchmarks.floor import COMMIT, COMMIT_OF_16
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

DETAIL = "A sentence of the report. " * 12


def run(_servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Deposit into all mailboxes round robin, by one and by many in turn, then empty them; `rounds` times."""
    targets = data.sessions(data.person(MODEL), sizes.mailboxes)
    _deposit_all(targets, 1, sizes.mailboxes)  # warm-up
    found = []
    for number in range(1, sizes.rounds + 1):
        alone = _deposit_all(targets, 1, sizes.deposits)
        together = _deposit_all(targets, sizes.depositors, sizes.deposits)
        data.settle()
        found.append((alone, together, *_drain_all(targets)))
        say(f"round {number}: {alone:.0f} deposits/s by one, {together:.0f}/s by {sizes.depositors}")
    alone, together, drains, updates = map(statistics.median, zip(*found, strict=True))
    return [
        Figure(
            name="deposits by one",
            value=alone,
            unit="/s",
            floor=COMMIT,
            note="each with an event for all windows",
        ),
        Figure(
            name="deposits by many at once",
            value=together,
            unit="/s",
            floor=COMMIT_OF_16,
            note=f"{sizes.depositors} threads, {sizes.mailboxes} mailboxes",
        ),
        Figure(
            name="drains",
            value=drains,
            unit="/s",
            floor=COMMIT,
            note="read, then acknowledged in a transaction",
        ),
        Figure(name="updates drained", value=updates, unit="/s", floor=COMMIT),
    ]


def _deposit_all(targets: list[Any], threads: int, count: int) -> float:
    from django.db import connection

    from sessions_app.mailbox.deposit import NewUpdate, deposit

    def some(first: int) -> int:
        made = 0
        for number in range(first, count, threads):
            mail = NewUpdate(event_type="job_completed", summary=f"Update {number}.", detail=DETAIL)
            made += deposit(targets[number % len(targets)].pk, mail)
            connection.close()  # back to the pool, as after a job's commit
        return made

    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        made = sum(pool.map(some, range(threads)))
    seconds = time.monotonic() - began
    if made != count:
        raise RuntimeError(f"{made} of {count} updates were deposited")
    return count / seconds


def _drain_all(targets: list[Any]) -> tuple[float, float]:
    """Drains and updates per second, until every mailbox is empty."""
    from django.db import transaction

    from sessions_app.mailbox.updates import acknowledge, unread, updates_to_show
    from sessions_app.models import Turn

    waiting = unread().count()
    for target in targets:
        data.queue_rows(target, 1)
    turns = {turn.session_id: turn for turn in Turn.objects.filter(session__in=targets)}
    drains, seconds = 0, 0.0
    while unread().exists():
        for target in targets:
            began = time.monotonic()
            drained = updates_to_show(target.pk)
            with transaction.atomic():
                acknowledge(turns[target.pk], drained.ids)
            seconds += time.monotonic() - began
            drains += 1
    return drains / seconds, waiting / seconds
