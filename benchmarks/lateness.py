"""How late slots are fired in real time: by this process, from the slot until the commit of its run and turn.

No worker runs meanwhile, and hints are sent as usual.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from benchmarks import data
from benchmarks.cost import MILLISECONDS, percentiles
from benchmarks.crowd import Crowd
from benchmarks.report import Figure

PER_SECOND = 100
TARGET_P99 = 100.0  # milliseconds
PATIENCE = 30.0  # seconds after the last slot


def run_slots(crowd: Crowd, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    """Let `PER_SECOND` jobs of the crowd become due each second, evenly, and fire them as beat does."""
    from automations.beat import Scheduler
    from automations.firing import insert_runs, one_by_one
    from config.celery import app
    from sessions_app import hints

    ids = crowd.pick(max(2, int(PER_SECOND * seconds)))
    data.make_due([])
    committed: dict[str, float] = {}
    announce = insert_runs.announce_turns

    def noted(queued: Sequence[Any]) -> Any:
        now = time.time()
        committed.update((turn.origin_run.partition(":")[0], now) for turn in queued)
        return announce(queued)

    scheduler = Scheduler(app=app, lazy=True)
    slots = data.spread(ids, seconds)
    give_up = time.monotonic() + seconds + PATIENCE
    with patch.object(one_by_one, "announce_turns", noted):
        while len(committed) < len(ids):
            if time.monotonic() > give_up:
                raise TimeoutError(f"{len(committed)} of {len(ids)} slots were fired")
            scheduler.tick()
    hints.flush_hints(60.0)
    data.check_fired(ids)
    data.end_fired()
    late = [(committed[each] - slots[each].timestamp()) * MILLISECONDS for each in ids]
    points = percentiles(late)
    say(f"{len(ids):,} slots, {PER_SECOND} a second: a median of {statistics.median(late):.1f} ms late")
    name = f"slot fired late, {PER_SECOND} a second among {len(crowd.job_ids):,}"
    return [
        Figure(name=name, value=statistics.median(late), unit="ms", note="median, until the commit"),
        Figure(
            name=f"{name}, p99",
            value=points[-1],
            unit="ms",
            at_most=TARGET_P99,
            note=f"the latest {max(late):.1f} ms",
        ),
    ]
