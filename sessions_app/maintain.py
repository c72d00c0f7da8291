"""Maintain: a round of pruning, in small batches with pauses, by one process of the fleet at a time.

Beat hints at it; a lost hint costs one round. A round ends when there is nothing left to do, or when its time is up:
then it asks for the next one itself.
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

from sessions_app import wake
from sessions_app.lock import connect_directly
from sessions_app.prune import Walk, count, due, prune, walks

log = structlog.get_logger(__name__)

LOCK = 0x52_6F_6E_64_6F_02  # one round at a time in the whole fleet
ROUND = 60.0  # seconds
REST = 1.0  # pause after each batch, as a multiple of the time that it took
SHORTEST_REST = 0.005  # seconds


@dataclass(kw_only=True)
class Round:
    """What came of a round. `mine` False: another process was at it. `left`: its time was up before all was done.

    `waited`: walks that found what they need in other hands; `failed`: those that a bug ended.
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
        """One line."""
        if not self.mine:
            return "maintenance is at work in another process"
        found = ", ".join(f"{count:,} {name}" for name, count in self.removed.items() if count)
        parts = [f"{self.verb} {found or 'nothing'} in {self.seconds:.1f} s, {self.batches} batches"]
        parts += [f"to be tried again: {', '.join(self.waited)}"] * bool(self.waited)
        parts += [f"failed, see the log: {', '.join(self.failed)}"] * bool(self.failed)
        parts += ["there is more"] * self.left
        return "; ".join(parts)


Tell = Callable[[Round], None]


def maintain(
    stop: Callable[[], bool], seconds: float = math.inf, spare: float = 0.0, tell: Tell = lambda _: None
) -> Round:
    """One round of at most so many `seconds`; `stop` is asked between batches, `tell` after each.

    Walks that came to their end within the last `spare` seconds are left out.
    """
    done, began = Round(), time.monotonic()
    with _alone() as alone:
        if not alone:
            return Round(mine=False)
        left = deque(due(spare))
        while left and not stop():
            walk = left.popleft()  # in turn: a long walk does not keep the others waiting
            if _batch(walk, done):
                left.append(walk)
            done.seconds = time.monotonic() - began
            tell(done)
            if done.seconds > seconds:
                done.left = bool(left)
                break
    return done


def counted(tell: Tell) -> Round:
    """What a round without end would remove now, by the walk that finds it."""
    done, began = Round(verb="would remove"), time.monotonic()
    for walk in walks():
        step = count(walk)
        while True:
            done.removed[walk.name] += step.removed
            done.batches += 1
            done.seconds = time.monotonic() - began
            tell(done)
            if not step.more:
                break
            step = count(walk, step.position)
    return done


def hinted(stop: Callable[[], bool]) -> None:
    """A round that a hint asked for. What has just been done is not done again: each beat hints, and so do rounds."""
    done = maintain(stop, ROUND, settings.RONDO_MAINTENANCE_SECONDS / 2)
    if done.batches:
        log.info("maintained", rows=done.removed.total(), summary=str(done))
    if done.left:
        wake.ask_for_maintenance()


@contextmanager
def _alone() -> Iterator[bool]:
    """Whether this process holds the lock. It lies on a connection of its own, and dies with the process."""
    with connect_directly(settings.DATABASE_LOCK_URL, application_name="rondo maintain") as own:
        row = own.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone()
        yield row is not None and bool(row[0])
        with suppress(psycopg.Error):  # a connection that is only closed keeps its lock for a moment
            own.execute("SELECT pg_advisory_unlock_all()")


def _batch(walk: Walk, done: Round) -> bool:
    """One batch and the rest after it; whether the walk goes on in this round."""
    began = time.monotonic()
    try:
        step = prune(walk)
    except OperationalError as error:
        # somebody holds what it needs for longer than it waits, or the database is away: the next round tries again
        log.warning("prune_waits", of=walk.name, error=type(error.__cause__ or error).__name__)
        done.waited.append(walk.name)
        return False
    except Exception:  # a bug in one must not end the others
        log.exception("prune_failed", of=walk.name)
        done.failed.append(walk.name)
        return False
    finally:
        connection.close()  # the pool is other people's while this one rests
    done.removed[walk.name] += step.removed
    done.batches += 1
    time.sleep(max((time.monotonic() - began) * REST, SHORTEST_REST))
    return step.more
