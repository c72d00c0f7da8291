"""How the turn engine's connections, locks and statements may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

LOCKS = "tests/chaos/test_locks.py::"

ENGINE = (
    Break(
        rule="1.8",
        how="heartbeats wait for hints that wait for a locked table",
        file="sessions_app/turns/lock.py",
        old='    "lock_timeout": "50ms",',
        new='    "lock_timeout": "5s",',
        tests=(LOCKS + "test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint",),
    ),
    Break(
        rule="1.8",
        how="a hint that finds the turn table locked is lost",
        file="sessions_app/turns/lock.py",
        old="        with suppress(psycopg.errors.LockNotAvailable):\n",
        new="        if True:\n",
        tests=(LOCKS + "test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint",),
    ),
    Break(
        rule="1.8",
        how="a locked table counts as a lost lock connection",
        file="sessions_app/worker/process.py",
        old="        except psycopg.errors.LockNotAvailable:\n",
        new="        except ZeroDivisionError:\n",
        tests=(LOCKS + "test_a_locked_turn_table_delays_no_heartbeat_and_loses_no_hint",),
    ),
)
