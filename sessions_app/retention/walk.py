"""Pruning: remove old rows in small batches, each in a short transaction of its own.

A batch stays short because it reads only the rows after the last batch in the order of a key, never a whole table.
Locked rows are skipped; the next walk finds them again. A walk that was interrupted continues after its last committed
batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol

import sqlalchemy as sa
from django.apps import apps
from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.functions import Now

from sessions_app.models import Pruning, Session
from sessions_app.postgres.rows import fetch
from sessions_app.postgres.statements import Statement, table

LIMIT = sa.bindparam("limit", type_=sa.Integer())
HOUR: Any = sa.literal_column("interval '1 hour'")

BATCH = 500  # rows of one transaction
OWNERS = 500  # owners whose rows one batch of an OwnerWalk reads
_BOUNDS = """SELECT set_config('lock_timeout', '1s', true), set_config('statement_timeout', '30s', true),
 set_config('synchronous_commit', 'off', true)"""  # a batch that is lost in a server crash is repeated


@dataclass(frozen=True, kw_only=True)
class WalkStep:
    """The result of one batch. `more`: the walk has not reached its end."""

    removed: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    more: bool = False


class Walk(Protocol):
    """A walk through one kind of rows. Its settings are read with every batch."""

    @property
    def name(self) -> str:
        """The kind of rows that the walk removes, such as `events`."""

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Remove old rows among the next ones, in the current transaction; `dry`: only count them."""


_walks: dict[str, Walk] = {}


@cache
def load_rules() -> None:
    """Have each app register its walks, once. They are loaded when needed, since SQLAlchemy is slow to import."""
    for config in apps.get_app_configs():
        if register := getattr(config, "register_retention", None):
            register()


def register_walk(walk: Walk) -> None:
    """Register a walk with maintenance."""
    _walks[walk.name] = walk


def walks() -> tuple[Walk, ...]:
    """Return all registered walks."""
    load_rules()
    return tuple(_walks.values())


def due_walks(spare: float) -> list[Walk]:
    """Return the walks that were not completed within the last `spare` seconds.

    Those with the oldest last batch come first, so that short rounds leave none out.
    """
    rows = Pruning.objects.all()
    ended = set(rows.filter(completed_at__gt=Now() - timedelta(seconds=spare)).values_list("name", flat=True))
    walked = dict(rows.exclude(walked_at=None).values_list("name", "walked_at"))
    never = datetime.min.replace(tzinfo=UTC)
    left = [walk for walk in walks() if walk.name not in ended]
    return sorted(left, key=lambda walk: walked.get(walk.name) or never)


def prune_batch(walk: Walk, limit: int = BATCH) -> WalkStep:
    """Prune one batch and commit it with the position that it reached."""
    with transaction.atomic():
        fetch(_BOUNDS)
        Pruning.objects.bulk_create([Pruning(name=walk.name)], ignore_conflicts=True)
        # this lock keeps two batches of one walk from running at the same time
        row = Pruning.objects.select_for_update(no_key=True).get(pk=walk.name)
        step = walk.step(row.position, limit, dry=False)
        ended = {} if step.more else {"completed_at": Now()}
        Pruning.objects.filter(pk=walk.name).update(
            position=step.position, removed=F("removed") + step.removed, walked_at=Now(), **ended
        )
    return step


def count_batch(walk: Walk, position: dict[str, Any] | None = None, limit: int = BATCH) -> WalkStep:
    """Count one batch without removing anything. Without a position it begins where the stored walk stands."""
    if position is None:
        row = Pruning.objects.filter(pk=walk.name).first()
        position = row.position if row else {}
    return walk.step(position, limit, dry=True)


def remove_unlocked(rows: QuerySet[Any]) -> Callable[[Iterable[Any]], set[Any]]:
    """Return a function that deletes the rows with given ids, except locked ones, and returns the deleted ids."""

    def remove(ids: Iterable[Any]) -> set[Any]:
        free = rows.filter(pk__in=ids).order_by("pk").select_for_update(skip_locked=True)
        removed = set(free.values_list("pk", flat=True))
        rows.model.objects.filter(pk__in=removed).delete()
        return removed

    return remove


@dataclass(frozen=True, kw_only=True)
class AgeWalk:
    """Walks through a table in the order of its ids, oldest first, up to the first row that is too young.

    A row is removed `days` after `ended_at`, if `may_go` is true of it. `remove` returns the ids that it removed.
    """

    name: str
    days: Callable[[], int]  # 0: for ever
    rows: QuerySet[Any]
    ended_at: Any  # a field or an expression; null: it has not ended
    may_go: Q = field(default_factory=Q)
    born: str = "created_at"  # the field that says how old a row is
    remove: Callable[[Iterable[Any]], set[Any]] | None = None  # by default those that are not locked

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Handle the next `limit` rows."""
        after: int = position.get("after", 0)
        days = self.days()
        if not days:
            return WalkStep(position=position)
        rows = self._page(after, limit, Now() - timedelta(days=days))
        may_go = [key for key, is_old, is_over in rows if is_old and is_over]
        gone = set(may_go) if dry or not may_go else (self.remove or remove_unlocked(self.rows))(may_go)
        kept = position.get("kept") or next((key for key, *_ in rows if key not in gone), None)
        last, is_old = rows[-1][:2] if rows else (after, False)
        if len(rows) == limit and is_old:
            return WalkStep(removed=len(gone), position={"after": last, "kept": kept}, more=True)
        # the next walk begins at the first row that was kept, and skips the dead index entries before it
        return WalkStep(removed=len(gone), position={"after": kept - 1 if kept else last})

    def _page(self, after: int, limit: int, before: Any) -> list[tuple[int, bool, bool]]:
        """Return the next ids; whether each is old enough to go on after it; whether it may be removed."""
        rows = self.rows.filter(pk__gt=after).order_by("pk")
        ended = self.ended_at if isinstance(self.ended_at, str) else "ended_instant"
        if ended is not self.ended_at:
            rows = rows.annotate(ended_instant=self.ended_at)
        over = self.may_go & Q(**{f"{ended}__lt": before})
        columns = {
            "is_old": Case(When(**{f"{self.born}__lt": before}, then=True), default=False),
            "is_over": Case(When(over, then=True), default=False),
        }
        return list(rows.annotate(**columns).values_list("pk", *columns)[:limit])


@dataclass(frozen=True, kw_only=True)
class OwnerWalk:
    """Walks from owner to owner in the order of their keys, and removes the rows of each that are too many or too old.

    `owners` reads the `id` of `:limit` owners after `:after`. `over` reads the `owner` and `id` of at most `:limit`
    rows of `:owners` that may be removed, in the order of the owners. `params` returns the settings for `over`; None
    means that everything is kept.
    """

    name: str
    params: Callable[[], dict[str, Any] | None]
    owners: Statement
    over: Statement
    remove: Callable[[list[Any]], set[Any]]
    # a key that sorts before all others; by default the owners are sessions
    first: str = str(uuid.UUID(int=0))
    read_key: Callable[[str], Any] = uuid.UUID

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Handle the next owners, as far as their rows fit in `limit`."""
        params = self.params()
        if params is None:
            return WalkStep(position=position)
        after: str = position.get("after", self.first)
        owners = [row.id for row in self.owners.all(after=self.read_key(after), limit=OWNERS)]
        if not owners:
            return WalkStep()
        rows = self.over.all(owners=owners, limit=None if dry else limit, **params)
        ids = [row.id for row in rows]
        gone = set(ids) if dry or not ids else self.remove(ids)
        if len(rows) == limit and gone and not dry:
            # the last owner may have more rows: the next batch begins with it
            done = [row.owner for row in rows if row.owner != rows[-1].owner]
            again = {"after": str(done[-1])} if done else position
            return WalkStep(removed=len(gone), position=again, more=True)
        more = len(owners) == OWNERS
        return WalkStep(removed=len(gone), position={"after": str(owners[-1])} if more else {}, more=more)


def old(instant: Any) -> Any:
    """Condition: the instant is more than `:days` ago."""
    return instant < sa.func.now() - sa.func.make_interval(0, 0, 0, sa.bindparam("days", type_=sa.Integer()))


def owner_keys(key: Any) -> Statement:
    """Return the statement that reads the owners of an OwnerWalk."""
    after = sa.bindparam("after", type_=key.type)
    return Statement(sa.select(key.label("id")).where(key > after).order_by(key).limit(LIMIT))


def of_owners(key: Any, beyond: Callable[[Any], Any]) -> Statement:
    """Select, for each of `:owners`, the rows that `beyond` selects. `beyond` gets a table with the owner's `id`."""
    given = sa.func.unnest(sa.bindparam("owners", type_=sa.ARRAY(key.type)))
    owner = given.table_valued(sa.column("id", key.type), name="owner").render_derived()
    rows = beyond(owner).limit(LIMIT).correlate(owner).lateral("beyond")
    return Statement(
        sa.select(owner.c.id.label("owner"), rows.c.id).select_from(owner.join(rows, sa.true())).limit(LIMIT)
    )


SESSIONS = owner_keys(table(Session).c.id)
