"""Prune: what is old goes, in small batches, each a short transaction of its own.

What keeps a batch short is where it looks: at the rows that follow the last batch's in the order of a key, never
through a table. What is in other hands is skipped, and found again by the next walk. A walk that was broken off,
or whose process died, goes on where its last batch was committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from sessions_app.models import Pruning
from sessions_app.sql import Statement

BATCH = 500  # rows of one transaction
OWNERS = 500  # whose rows one batch of an OwnerWalk looks at
_BOUNDS = """SELECT set_config('lock_timeout', '1s', true), set_config('statement_timeout', '30s', true),
 set_config('synchronous_commit', 'off', true)"""  # a batch that a crash of the server loses is done again


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one batch did. `more`: the walk has not come to its end."""

    removed: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    more: bool = False


class Walk(Protocol):
    """A way through one kind of rows. Its settings are read with every batch."""

    @property
    def name(self) -> str:
        """What goes, such as `events`."""

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> Step:
        """Remove what may go of the next rows, in the transaction under way; `dry`: only count it."""


_walks: dict[str, Walk] = {}


def register(walk: Walk) -> None:
    """Have maintenance do this, too."""
    _walks[walk.name] = walk


def walks() -> tuple[Walk, ...]:
    """All that is registered."""
    return tuple(_walks.values())


def due(spare: float) -> list[Walk]:
    """Walks that did not come to their end within the last `spare` seconds.

    First those whose last batch is the longest ago, so that short rounds leave none out.
    """
    rows = Pruning.objects.all()
    ended = set(rows.filter(completed_at__gt=Now() - timedelta(seconds=spare)).values_list("name", flat=True))
    walked = dict(rows.exclude(walked_at=None).values_list("name", "walked_at"))
    never = datetime.min.replace(tzinfo=UTC)
    left = [walk for walk in walks() if walk.name not in ended]
    return sorted(left, key=lambda walk: walked.get(walk.name) or never)


def prune(walk: Walk, limit: int = BATCH) -> Step:
    """One batch, committed with the position it came to."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_BOUNDS)
        Pruning.objects.bulk_create([Pruning(name=walk.name)], ignore_conflicts=True)
        # two batches of one walk are never under way together
        row = Pruning.objects.select_for_update(no_key=True).get(pk=walk.name)
        step = walk.step(row.position, limit, dry=False)
        ended = {} if step.more else {"completed_at": Now()}
        Pruning.objects.filter(pk=walk.name).update(
            position=step.position, removed=F("removed") + step.removed, walked_at=Now(), **ended
        )
    return step


def count(walk: Walk, position: dict[str, Any] | None = None, limit: int = BATCH) -> Step:
    """One batch of a walk that removes nothing; without a position it begins where the last one stands."""
    if position is None:
        row = Pruning.objects.filter(pk=walk.name).first()
        position = row.position if row else {}
    return walk.step(position, limit, dry=True)


@dataclass(frozen=True, kw_only=True)
class AgeWalk:
    """Through a table in the order of its ids, the oldest first, until the first row that is too young.

    `window` reads `:limit` rows after `:after`, with `id`, `young` (it and what follows stay, by `:days`) and
    `over` (it may go). `remove` is given the ids of those that may and answers the ids that are gone.
    """

    name: str
    days: Callable[[], int]  # 0: for ever
    window: Statement
    remove: Callable[[list[int]], set[int]]

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> Step:
        """The next `limit` rows."""
        after: int = position.get("after", 0)
        days = self.days()
        if not days:
            return Step(position=position)
        rows = self.window.all(after=after, limit=limit, days=days)
        may_go = [row.id for row in rows if row.over and not row.young]
        gone = self._gone(may_go, dry)
        kept = position.get("kept") or next((row.id for row in rows if row.id not in gone), None)
        if len(rows) == limit and not rows[-1].young:
            return Step(removed=len(gone), position={"after": rows[-1].id, "kept": kept}, more=True)
        # the next walk begins at the first row that stayed, not among the dead entries of the index before it
        last = rows[-1].id if rows else after
        return Step(removed=len(gone), position={"after": kept - 1 if kept else last})

    def _gone(self, ids: list[int], dry: bool) -> set[int]:
        if dry or not ids:
            return set(ids)
        return self.remove(ids)


@dataclass(frozen=True, kw_only=True)
class OwnerWalk:
    """From owner to owner in the order of their keys; what is too much or too old of each goes.

    `owners` reads the `id` of `:limit` owners after `:after`; `over` the `owner` and `id` of at most `:limit` rows
    of `:owners` that may go, in the order of the owners. `params` are the settings that `over` asks for; None: all
    of it is kept for ever.
    """

    name: str
    params: Callable[[], dict[str, Any] | None]
    owners: Statement
    first: str  # a key before any other
    read_key: Callable[[str], Any]
    over: Statement
    remove: Callable[[list[Any]], set[Any]]

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> Step:
        """The next owners, or as many as `limit` of their rows let it."""
        params = self.params()
        if params is None:
            return Step(position=position)
        after: str = position.get("after", self.first)
        owners = [row.id for row in self.owners.all(after=self.read_key(after), limit=OWNERS)]
        if not owners:
            return Step()
        rows = self.over.all(owners=owners, limit=None if dry else limit, **params)
        ids = [row.id for row in rows]
        gone = set(ids) if dry or not ids else self.remove(ids)
        if len(rows) == limit and gone and not dry:
            # the last of them may have more: it comes again
            done = [row.owner for row in rows if row.owner != rows[-1].owner]
            again = {"after": str(done[-1])} if done else position
            return Step(removed=len(gone), position=again, more=True)
        more = len(owners) == OWNERS
        return Step(removed=len(gone), position={"after": str(owners[-1])} if more else {}, more=more)
