"""Maintenance: a round of pruning in small batches with pauses, by one process of the fleet at a time.

Beat sends a hint for each round; a lost hint costs one round. A round ends when nothing is left to do, or when its time
is up; then it asks for the next round itself.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
import structlog
from django.conf import settings
from django.db import OperationalError, connection

from sessions_app import hints
from sessions_app.postgres.connection import connect_directly
from sessions_app.retention.walk import Walk, count_batch, due_walks, load_rules, prune_batch, walks

log = structlog.get_logger(__name__)

LOCK = 0x52_6F_6E_64_6F_02  # one round at a time in the whole fleet
ROUND = 60.0  # seconds
REST = 1.0  # pause after each batch, as a multiple of the time the batch took
SHORTEST_REST = 0.005  # seconds


@dataclass(kw_only=True)
class MaintenanceRound:
    """The result of a round. `mine` False: another process runs one. `left`: its time was up before all was done.

    `waited`: walks that could not get a lock or the database; `failed`: walks that raised an unexpected error.
    """

    verb: str = "removed"
    mine: bool = True
    left: bool = False
    removed: Counter[str] = field(default_factory=Counter)
    waited: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    batches: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        """Summarize it in one line."""
        if not self.mine:
            return "maintenance is running in another process"
        found = ", ".join(f"{count:,} {name}" for name, count in self.removed.items() if count)
        parts = [f"{self.verb} {found or 'nothing'} in {self.seconds:.1f} s, {self.batches} batches"]
        parts += [f"to be retried: {', '.join(self.waited)}"] * bool(self.waited)
        parts += [f"failed, see the log: {', '.join(self.failed)}"] * bool(self.failed)
        parts += ["there is more"] * self.left
        return "; ".join(parts)


Report = Callable[[MaintenanceRound], None]


def run_maintenance(
    stop: Callable[[], bool], seconds: float = math.inf, spare: float = 0.0, report: Report = lambda _: None
) -> MaintenanceRound:
    """Run one round of at most `seconds`. `stop` is asked between batches, `report` is called after each.

    Walks that were completed within the last `spare` seconds are left out.
    """
    done, began = MaintenanceRound(), time.monotonic()
    with _alone() as alone:
        if not alone:
            return MaintenanceRound(mine=False)
        left = deque(due_walks(spare))
        while left and not stop():
            walk = left.popleft()  # in turn, so that a long walk does not delay the others
            if _batch(walk, done):
                left.append(walk)
            done.seconds = time.monotonic() - began
            report(done)
            if done.seconds > seconds:
                done.left = bool(left)
                break
    return done


def count_prunable(report: Report) -> MaintenanceRound:
    """Count what a round without a time limit would remove now."""
    done, began = MaintenanceRound(verb="would remove"), time.monotonic()
    for walk in walks():
        step = count_batch(walk)
        while True:
            done.removed[walk.name] += step.removed
            done.batches += 1
            done.seconds = time.monotonic() - began
            report(done)
            if not step.more:
                break
            step = count_batch(walk, step.position)
    return done


Chore = Callable[[Callable[[], bool]], bool]  # gets `stop`; returns whether more is left to do
_chores: dict[str, Chore] = {}


def register_chore(name: str, chore: Chore) -> None:
    """Register a chore: a function that runs when a hint names it. Several processes may run it at the same time."""
    _chores[name] = chore


def run_hinted_maintenance(stop: Callable[[], bool], chore: str = "") -> None:
    """Run a round for a hint. Several beats send hints, so walks that were completed lately are left out.

    `chore`: run only this one. An unknown name is ignored: a server of another version has sent it.
    """
    if chore:
        load_rules()
        if chore in _chores and _chores[chore](stop):
            hints.ask_for_maintenance(chore)
        return
    done = run_maintenance(stop, ROUND, settings.RONDO_MAINTENANCE_SECONDS / 2)
    if done.batches:
        log.info("maintained", rows=done.removed.total(), summary=str(done))
    if done.left:
        hints.ask_for_maintenance()


@contextmanager
def _alone() -> Iterator[bool]:
    """Yield whether this process got the lock. The lock is on a connection of its own, and ends with the process."""
    with connect_directly(settings.DATABASE_LOCK_URL, application_name="rondo maintain") as own:
        row = own.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone()
        yield row is not None and bool(row[0])
        with suppress(psycopg.Error):  # closing the connection alone would free the lock a moment later
            own.execute("SELECT pg_advisory_unlock_all()")


def _batch(walk: Walk, done: MaintenanceRound) -> bool:
    """Prune one batch and pause after it. Returns whether the walk goes on in this round."""
    began = time.monotonic()
    try:
        step = prune_batch(walk)
    except OperationalError as error:
        # a lock timeout, or the database is away: the next round tries again
        log.warning("prune_waits", of=walk.name, error=type(error.__cause__ or error).__name__)
        done.waited.append(walk.name)
        return False
    except Exception:  # a bug in one walk must not end the others
        log.exception("prune_failed", of=walk.name)
        done.failed.append(walk.name)
        return False
    finally:
        connection.close()  # back to the pool during the pause
    done.removed[walk.name] += step.removed
    done.batches += 1
    time.sleep(max((time.monotonic() - began) * REST, SHORTEST_REST))
    return step.more
