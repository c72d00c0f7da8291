"""How much one user may have stored.

Stored bytes are added up only now and then: each process counts in memory what it stores for a user, and adds up what
the user has after each CHECKED_EACH bytes. If they are too many, the user is marked for FULL_SECONDS.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from operator import add
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import BigIntegerField, CharField, Exists, Func, OuterRef, QuerySet, Sum, Value
from django.db.models.functions import Cast, Concat, Now

from sessions_app.exceptions import StorageFull, TooManyAgents, TooManySessions
from sessions_app.models import (
    Agent,
    Allowance,
    Attachment,
    Document,
    DocumentRevision,
    Session,
    SessionType,
)
from sessions_app.postgres.rows import lock_until_commit

MEGABYTE = 1_000_000
CHECKED_EACH = 16 * MEGABYTE
FULL_SECONDS = 600
FULL = "full:"  # before a user's id, in the key of an allowance
_guard = threading.Lock()
_since_check: Counter[int] = Counter()  # bytes by user


def one_at_a_time(quota: str, owner_id: int) -> None:
    """Let transactions that add to a user's quota go one after the other, so that each counts what the others added."""
    lock_until_commit(f"rondo:quota:{quota}:{owner_id}")


def check_agents(owner_id: int) -> None:
    """Refuse another agent of this user, in the transaction that creates it. TooManyAgents."""
    one_at_a_time("agents", owner_id)
    most = settings.RONDO_AGENTS_PER_USER
    if _has(Agent.objects.filter(owner_id=owner_id), most):
        raise TooManyAgents(f"you have {most:,} agents, as many as a user may have here; delete one first")


def check_sessions(owner_id: int) -> None:
    """Refuse another session of this user, beside those of agents and automations, in the transaction that creates it.
    TooManySessions.
    """
    one_at_a_time("sessions", owner_id)
    most = settings.RONDO_SESSIONS_PER_USER
    if _has(Session.objects.filter(owner_id=owner_id, type=SessionType.SUB), most):
        raise TooManySessions(
            f"you have {most:,} sessions, as many as a user may have here; delete some first"
        )


def count_stored(owner_id: int, size: int) -> None:
    """Add to the bytes that this process has stored for a user since its last check.

    From CHECKED_EACH on, the user's whole storage is added up after the commit.
    """
    with _guard:
        _since_check[owner_id] += size
        if _since_check[owner_id] < CHECKED_EACH:
            return
        del _since_check[owner_id]
    transaction.on_commit(lambda: _check_stored(owner_id), robust=True)


def count_texts(owner_id: int, *texts: str) -> None:
    """Do what `count_stored` does for these texts."""
    count_stored(owner_id, sum(len(text.encode()) for text in texts))


def register_stored(stored: Callable[[int], int]) -> None:
    """Register a function that returns the bytes that an app above stores for a user."""
    if stored not in _stored:
        _stored.append(stored)


def octets(rows: QuerySet[Any], *columns: str) -> int:
    """Return the bytes in these columns of the rows."""
    sizes = (Func(name, function="octet_length", output_field=BigIntegerField()) for name in columns)
    return rows.aggregate(bytes=Sum(reduce(add, sizes)))["bytes"] or 0


def _stored_here(owner_id: int) -> int:
    sessions = Session.objects.filter(owner_id=owner_id).aggregate(bytes=Sum("stored_bytes"))
    return (
        (sessions["bytes"] or 0)
        + octets(Attachment.objects.filter(session__owner_id=owner_id), "content", "text")
        + octets(Document.objects.filter(agent__owner_id=owner_id), "content")
        + octets(DocumentRevision.objects.filter(document__agent__owner_id=owner_id), "content")
    )


_stored: list[Callable[[int], int]] = [_stored_here]


def _check_stored(owner_id: int) -> None:
    if sum(stored(owner_id) for stored in _stored) > settings.RONDO_MEGABYTES_PER_USER * MEGABYTE:
        mark = Allowance(key=f"{FULL}{owner_id}", full_at=Now() + timedelta(seconds=FULL_SECONDS))
        Allowance.objects.bulk_create(
            [mark], update_conflicts=True, update_fields=["full_at"], unique_fields=["key"]
        )


def is_full(owner_id: str) -> Exists:
    """Condition: the user whose id this column has was marked as one who has stored too many bytes."""
    key = Concat(Value(FULL), Cast(OuterRef(owner_id), CharField()))
    return Exists(Allowance.objects.filter(key=key, full_at__gt=Now()))


def check_room(owner_id: int) -> None:
    """Refuse to store more for a user who has stored too many bytes. StorageFull."""
    if sum(stored(owner_id) for stored in _stored) > settings.RONDO_MEGABYTES_PER_USER * MEGABYTE:
        raise StorageFull(full_text())


def full_text() -> str:
    """Return the text that a user reads whose storage is full."""
    most = settings.RONDO_MEGABYTES_PER_USER
    return (
        f"your conversations, documents and automations hold more than {most:,} MB, as much as a user may store here;"
        f" delete some, and try again in {FULL_SECONDS // 60} minutes"
    )


def _has(rows: QuerySet[Agent] | QuerySet[Session], most: int) -> bool:
    return rows.order_by()[most - 1 : most].exists()
