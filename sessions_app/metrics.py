"""Counters of what happens, for `/metrics`: gathered in memory, added to a table every few seconds (rule 10.1).

A row that every commit updates would be the one lock that all turns wait for. So `count` touches no database; what
a process gathered goes out by one statement, on a connection of its own. A killed process takes up to `INTERVAL`
with it: these are figures to watch, not to bill by.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter as Sums
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import psycopg
import structlog
from django.conf import settings
from django.db import transaction

from sessions_app.lock import connect_directly
from sessions_app.models import Counter

log = structlog.get_logger(__name__)

INTERVAL = 2.0  # seconds that counts are gathered
BUCKETS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000)  # milliseconds
EVERYTHING = "+Inf"


class Counted(StrEnum):
    """What is counted, by the names of `/metrics` (without `rondo_`)."""

    DELIVERY_FAILED = "delivery_failed_count"
    DELIVERY_SENT = "delivery_sent_count"
    HEARTBEAT_DELIVER = "heartbeat_deliver_count"
    HEARTBEAT_SKIPPED = "heartbeat_skipped_due_to_lock"
    HEARTBEAT_SUPPRESS = "heartbeat_suppress_count"
    JOB_SESSION_CREATED = "job_session_created"
    LOCK_WAIT_BUCKET = "lock_wait_ms_bucket"
    LOCK_WAIT_SUM = "lock_wait_ms_sum"
    MAILBOX_DEPOSIT = "mailbox_deposit_count"
    MAILBOX_DRAIN = "mailbox_drain_count"
    TURN_LIMIT = "turn_limit_count"


LABELS: dict[Counted, tuple[str, ...]] = {Counted.LOCK_WAIT_BUCKET: ("le",), Counted.TURN_LIMIT: ("code",)}
TURN_LIMITS = frozenset(
    {
        *("timeout", "max_tool_calls", "max_failed_tool_outputs", "max_same_failure_signature"),
        *("max_same_tool_intent", "max_rescues", "model_unavailable", "tool_hung"),
    }
)
_Key = tuple[str, str]  # name, labels as JSON
_UPSERT = """
INSERT INTO sessions_app_counter AS c (name, labels, value)
SELECT n, l::jsonb, v FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS given (n, l, v) ORDER BY n, l
ON CONFLICT (name, labels) DO UPDATE SET value = c.value + excluded.value"""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One stored counter."""

    name: str
    labels: dict[str, str]
    value: int


def count(name: str, by: int = 1, **labels: str) -> None:
    """Count something. Within a transaction it counts with the commit, and not at all without one.

    `name` is one of Counted, with just the labels that LABELS gives it.
    """
    if set(labels) != set(LABELS.get(Counted(name), ())):
        raise ValueError(f"{name} takes the labels {LABELS.get(Counted(name), ())}, not {sorted(labels)}")
    key = (str(name), json.dumps(labels, sort_keys=True))
    if transaction.get_connection().in_atomic_block:
        transaction.on_commit(lambda: _gathered.add(key, by), robust=True)
    else:
        _gathered.add(key, by)


def lock_waited(milliseconds: int) -> None:
    """A turn was taken up after so long a wait for its session and a free worker."""
    le = next((str(bound) for bound in BUCKETS if milliseconds <= bound), EVERYTHING)
    count(Counted.LOCK_WAIT_BUCKET, le=le)
    count(Counted.LOCK_WAIT_SUM, milliseconds)


def turn_failed(code: str) -> None:
    """A turn failed; it is counted when a limit of its policy ended it."""
    if code in TURN_LIMITS:
        count(Counted.TURN_LIMIT, code=code)


def figures() -> Iterator[Figure]:
    """All that was counted."""
    for row in Counter.objects.order_by("name", "labels"):
        yield Figure(name=row.name, labels=row.labels, value=row.value)


def flush() -> None:
    """Add what this process has gathered to the table now. What cannot be added is kept for the next time."""
    _gathered.flush()


class _Gathered:
    """What a process has counted since the last flush, and the timer of the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Start at nothing, as a forked child does: the sums are its parent's to add."""
        self._sums: Sums[_Key] = Sums()
        self._timer: threading.Timer | None = None

    def add(self, key: _Key, by: int) -> None:
        with self._lock:
            self._sums[key] += by
            if self._timer is None:
                self._timer = threading.Timer(INTERVAL, self.flush)
                self._timer.name, self._timer.daemon = "rondo-metrics", True
                self._timer.start()

    def flush(self) -> None:
        with self._lock:
            taken = self._sums
            self.forget()
        if not taken:
            return
        try:
            _add(taken)
        except (psycopg.Error, OSError) as error:
            log.warning("metrics_kept_back", error=type(error).__name__)
            for key, by in taken.items():
                self.add(key, by)


def _add(sums: Sums[_Key]) -> None:
    names, labels = zip(*sums, strict=True)
    with connect_directly(settings.DATABASE_LOCK_URL, application_name="rondo metrics") as own:
        own.execute(_UPSERT, [list(names), list(labels), list(sums.values())])


_gathered = _Gathered()


def _begin_anew() -> None:
    global _gathered  # noqa: PLW0603 - its lock may have been held by a thread that the child does not have
    _gathered = _Gathered()


os.register_at_fork(after_in_child=_begin_anew)
