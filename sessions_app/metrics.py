"""Counters for `/metrics`: gathered in memory and added to a table every few seconds (rule 10.1).

A row that every commit updates would be a lock that all turns wait for. So `count` touches no database: each process
writes its sums in one statement, on a connection of its own. A killed process loses the counts of up to `INTERVAL`
seconds, so the counters are for monitoring, not for billing.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter as Sums
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from agent_core.types import Usage
from sessions_app.models import Counter
from sessions_app.postgres.connection import connect_directly
from sessions_app.postgres.rows import fetch

log = structlog.get_logger(__name__)

INTERVAL = 2.0  # seconds between two writes
BUCKETS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000)  # milliseconds
DURATIONS = (100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000)  # milliseconds
EVERYTHING = "+Inf"
NO_REASON = "none"
OTHER = "other"
_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Counted(StrEnum):
    """The counters, by their names in the table; those that end with `_count` also have these names in `/metrics`."""

    BEAT_ROUND = "beat_rounds"
    CAP_REFUSAL = "cap_refusals"
    DELIVERY_ATTEMPT_FAILED = "delivery_attempts_failed"
    DELIVERY_FAILED = "delivery_failed_count"
    DELIVERY_SENT = "delivery_sent_count"
    ERROR = "errors"
    HEARTBEAT_DELIVER = "heartbeat_deliver_count"
    HEARTBEAT_SKIPPED = "heartbeat_skipped_due_to_lock"
    HEARTBEAT_SUPPRESS = "heartbeat_suppress_count"
    JOB_SESSION_CREATED = "job_session_created"
    LOCK_WAIT_BUCKET = "lock_wait_ms_bucket"
    LOCK_WAIT_SUM = "lock_wait_ms_sum"
    MAILBOX_DEPOSIT = "mailbox_deposit_count"
    MAILBOX_DRAIN = "mailbox_drain_count"
    QUEUE_FULL = "queue_full"
    RUN = "runs"
    RUN_ATTEMPT_FAILED = "run_attempts_failed"
    SPENT = "spent_micro_usd"
    TOKENS = "tokens"
    TURN = "turns"
    TURN_DURATION_BUCKET = "turn_duration_ms_bucket"
    TURN_DURATION_SUM = "turn_duration_ms_sum"
    TURN_LIMIT = "turn_limit_count"


LABELS: dict[Counted, tuple[str, ...]] = {
    Counted.CAP_REFUSAL: ("scope", "period"),
    Counted.DELIVERY_ATTEMPT_FAILED: ("channel",),
    Counted.ERROR: ("event",),
    Counted.LOCK_WAIT_BUCKET: ("le",),
    Counted.QUEUE_FULL: ("queue",),
    Counted.RUN: ("outcome", "reason"),
    Counted.RUN_ATTEMPT_FAILED: ("reason",),
    Counted.TOKENS: ("type",),
    Counted.TURN: ("lane", "outcome", "reason"),
    Counted.TURN_DURATION_BUCKET: ("lane", "le"),
    Counted.TURN_DURATION_SUM: ("lane",),
    Counted.TURN_LIMIT: ("code",),
}
TURN_LIMITS = frozenset(
    {
        *("timeout", "max_tool_calls", "max_failed_tool_outputs", "max_same_failure_signature"),
        *("max_same_tool_intent", "max_rescues", "model_unavailable", "rate_limited", "tool_hung"),
    }
)
PROVIDER_FAULTS = frozenset({"model_unavailable", "rate_limited"})  # the others are limits of the policy
POLICY_LIMITS = TURN_LIMITS - PROVIDER_FAULTS
TOKENS = ("input", "output")
FULL_QUEUES = ("session", "automation")  # messages of people that were refused; slots that were skipped
_Key = tuple[str, tuple[tuple[str, str], ...]]  # name, labels
_UPSERT = """
INSERT INTO sessions_app_counter AS c (name, labels, value)
SELECT n, l::jsonb, v FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS given (n, l, v) ORDER BY n, l
ON CONFLICT (name, labels) DO UPDATE SET value = c.value + excluded.value, changed_at = now()"""
_SINCE = """
SELECT greatest(0, extract(epoch FROM clock_timestamp() - changed_at)) FROM sessions_app_counter
WHERE name = %s AND labels = '{}'"""


def count(name: str, by: int = 1, **labels: str) -> None:
    """Increase a counter. Inside a transaction it takes effect after the commit.

    `name` is one of Counted, with exactly the labels that LABELS lists for it.
    """
    if set(labels) != set(LABELS.get(Counted(name), ())):
        raise ValueError(f"{name} takes the labels {LABELS.get(Counted(name), ())}, not {sorted(labels)}")
    key = (str(name), tuple(sorted(labels.items())))
    if transaction.get_connection().in_atomic_block:
        transaction.on_commit(lambda: _gathered.add(key, by), robust=True)
    else:
        _gathered.add(key, by)


def count_lock_wait(milliseconds: int) -> None:
    """Count how long a turn waited for its session and a free worker."""
    count(Counted.LOCK_WAIT_BUCKET, le=_bucket(milliseconds, BUCKETS))
    count(Counted.LOCK_WAIT_SUM, milliseconds)


def count_turn(lane: str, outcome: str, reason: str, seconds: float, usage: Mapping[str, Any]) -> None:
    """Count a turn that ended, how long its last worker had it, and the tokens and money that it used."""
    milliseconds = round(seconds * 1000)
    count(Counted.TURN, lane=lane, outcome=outcome, reason=_bounded(reason))
    count(Counted.TURN_DURATION_BUCKET, lane=lane, le=_bucket(milliseconds, DURATIONS))
    count(Counted.TURN_DURATION_SUM, milliseconds, lane=lane)
    for kind in TOKENS:
        if used := int(usage.get(f"{kind}_tokens") or 0):
            count(Counted.TOKENS, used, type=kind)
    if micro := Usage.from_json(usage).micro_usd:
        count(Counted.SPENT, micro)


def count_error(event: str) -> None:
    """Count a line that was logged as an error, whether or not the transaction of its work is committed."""
    _gathered.add((str(Counted.ERROR), (("event", _bounded(event)),)), 1)


def count_run(outcome: str, reason: str | None, by: int = 1) -> None:
    """Count runs that ended: succeeded, failed, cancelled or skipped."""
    count(Counted.RUN, by, outcome=outcome, reason=_bounded(reason))
    if outcome == "failed":
        count_failed_attempt(reason, by)


def count_failed_attempt(reason: str | None, by: int = 1) -> None:
    """Count attempts of runs that failed, also those that are followed by another one."""
    count(Counted.RUN_ATTEMPT_FAILED, by, reason=_bounded(reason))


def _bounded(reason: str | None) -> str:
    """A code as a label: whatever is no code, such as a text of a plugin, is `other`."""
    if not reason:
        return NO_REASON
    return str(reason) if _REASON.fullmatch(str(reason)) else OTHER


def _bucket(milliseconds: int, bounds: tuple[int, ...]) -> str:
    return next((str(bound) for bound in bounds if milliseconds <= bound), EVERYTHING)


def count_turn_limit(code: str) -> None:
    """Count a failed turn if a limit of its policy ended it."""
    if code in TURN_LIMITS:
        count(Counted.TURN_LIMIT, code=code)


def figures() -> QuerySet[Counter]:
    """Read all counters."""
    return Counter.objects.order_by("name", "labels")


def seconds_since_beat() -> float | None:
    """The seconds since a beat last wrote that it finished a round; None: none ever did."""
    found = fetch(_SINCE, [Counted.BEAT_ROUND])
    return float(found[0][0]) if found else None


def flush_counters() -> None:
    """Write the sums of this process, and wait for a write of its timer that is under way.

    Sums that cannot be written are kept for the next time.
    """
    _gathered.flush()


class _Gathered:
    """The counts of a process since its last write, and the timer of the next write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # who flushes beside the timer returns when the timer's sums are written, too
        self._writing = threading.Lock()
        self.reset()

    def reset(self) -> None:
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
        with self._writing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            sums = self._sums
            self.reset()
        if not sums:
            return
        try:
            _store(sums)
        except (psycopg.Error, OSError) as error:
            log.warning("metrics_kept_back", error=type(error).__name__)
            for key, by in sums.items():
                self.add(key, by)


def _store(sums: Sums[_Key]) -> None:
    names, labels = zip(*((name, json.dumps(dict(labels))) for name, labels in sums), strict=True)
    with connect_directly(settings.DATABASE_LOCK_URL, application_name="rondo metrics") as own:
        own.execute(_UPSERT, [list(names), list(labels), list(sums.values())])


_gathered = _Gathered()


def _reset_after_fork() -> None:
    """Start from zero in a forked child: the parent writes its own sums."""
    global _gathered  # noqa: PLW0603 - its lock may have been held by a thread that the child does not have
    _gathered = _Gathered()


os.register_at_fork(after_in_child=_reset_after_fork)
