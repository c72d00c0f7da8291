"""Races told in order: actions are held up at a row, one behind the other, and then let go; and what may be left.

Each action runs on a connection of its own. PostgreSQL lets those who wait for one row go on in the order they came.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.apps import apps
from django.conf import settings
from django.db import connection, models

from tests.fleet import until

# what each lock lets pass: KEY SHARE all but deletes, SHARE also no change of the row, UPDATE no new child either
KEY_SHARE, SHARE, UPDATE = "KEY SHARE", "SHARE", "UPDATE"


class Gate:
    """A held row, and who waits: for it, or for one who waits."""

    def __init__(self, holder: psycopg.Connection[Any]) -> None:
        self._holder = holder
        self._started: list[tuple[Any, list[Any]]] = []

    def start(self, action: Callable[[], Any], *, waits: bool = True) -> None:
        """Begin an action; with `waits` return once it stands in line."""
        before = waiting()
        self._started.append(in_thread(action))
        if waits:
            until(lambda: waiting() > before, 20, f"{action} waits")

    def open(self) -> list[Any]:
        """Let them go; what each came to, in the order they were started."""
        self._holder.rollback()
        for thread, _ in self._started:
            thread.join(60)
            assert not thread.is_alive(), "it ends"
        return [came[0] for _, came in self._started]


@contextmanager
def gate(row: models.Model, strength: str) -> Iterator[Gate]:
    """Hold a row until the gate is opened."""
    table, key = row._meta.db_table, row._meta.pk.column
    with psycopg.connect(settings.DATABASE_LOCK_URL) as holder:
        holder.execute(f"SELECT 1 FROM {table} WHERE {key} = %s FOR {strength}", [row.pk])
        yield Gate(holder)


def in_line(row: models.Model, strength: str, *actions: Callable[[], Any]) -> list[Any]:
    """What each of them came to, who stood at the row one behind the other."""
    with gate(row, strength) as held:
        for action in actions:
            held.start(action)
        return held.open()


def behind(action: Callable[[], Any]) -> Callable[[], Any]:
    """Begin an action that waits for this transaction; what is returned says what it came to, once that has ended."""
    already = waiting()
    thread, came = in_thread(action)
    until(lambda: waiting() > already, 20, f"{action} waits")

    def ends() -> Any:
        thread.join(60)
        assert not thread.is_alive(), "it ends"
        return came[0]

    return ends


@contextmanager
def before(words: str, action: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do something on another connection, and commit it, once before the first statement with these words."""
    came: list[Any] = []

    def wrap(execute: Any, statement: str, *more: Any) -> Any:
        if words in statement and not came:
            thread, results = in_thread(action)
            thread.join(20)
            came.extend(results)
        return execute(statement, *more)

    with connection.execute_wrapper(wrap):
        yield came


@contextmanager
def with_each_new_run(statement: str) -> Iterator[None]:
    """The database does this, too, whenever a run is stored as NEW."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION new_run() RETURNS trigger LANGUAGE plpgsql"
            f" AS $$ BEGIN {statement}; RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER new_run AFTER INSERT ON automations_runrecord FOR EACH ROW EXECUTE FUNCTION new_run()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION new_run() CASCADE")


def backends_that(condition: str) -> list[int]:
    """Who of those connected to the test database are so."""
    where = f"datname = current_database() AND {condition}"
    return selected(f"SELECT pid FROM pg_stat_activity WHERE {where}")


def waiting() -> int:
    """How many backends wait for another one's lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees the first look for good
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        return int(cursor.fetchone()[0])


ORPHANS = {
    "a bound job without a session": """
        SELECT id FROM automations_cronjob
        WHERE session_id IS NULL AND kind = 'agent_turn' AND session_key = '' AND channel = '' AND "to" = ''
          AND execution_mode = 'session'
    """,
    "a job without a clock": """
        SELECT j.id FROM automations_cronjob j LEFT JOIN automations_jobclock c ON c.job_id = j.id
        WHERE c.job_id IS NULL
    """,
    "a run of a bound job without a session": """
        SELECT r.run_id FROM automations_runrecord r JOIN automations_cronjob j ON j.id = r.job_id
        WHERE j.session_id IS NOT NULL AND r.session_id IS DISTINCT FROM j.session_id
    """,
    "an open run that nothing will end": """
        SELECT r.run_id FROM automations_runrecord r LEFT JOIN sessions_app_turn t ON t.id = r.turn_id
        WHERE r.state IN ('queued', 'running') AND r.not_before IS NULL
          AND (t.id IS NULL OR t.state NOT IN ('queued', 'running'))
    """,
    "a scheduled message that nothing will end": """
        SELECT m.id FROM automations_scheduledmessage m
        WHERE m.status = 'pending' AND m.taken_at IS NOT NULL
          AND NOT EXISTS (
            SELECT 1 FROM automations_runrecord r JOIN sessions_app_turn t ON t.id = r.turn_id
            WHERE r.scheduled_message_id = m.id AND t.state IN ('queued', 'running'))
          AND NOT EXISTS (
            SELECT 1 FROM sessions_app_delivery d
            WHERE d.message_id = m.sent_message_id AND d.state IN ('pending', 'sending'))
    """,
    "an automation's turn without its run": """
        SELECT t.id FROM sessions_app_turn t
        WHERE t.kind = 'automation' AND t.state IN ('queued', 'running')
          AND NOT EXISTS (SELECT 1 FROM automations_runrecord r WHERE r.run_id = t.origin_run)
    """,
    "an event of a turn that is gone": """
        SELECT e.id FROM sessions_app_event e LEFT JOIN sessions_app_turn t ON t.id = e.turn_id
        WHERE e.turn_id IS NOT NULL AND t.id IS NULL
    """,
    "a message without its turn": "SELECT id FROM sessions_app_message WHERE turn_id IS NULL",
    "mail for nobody": "SELECT id FROM sessions_app_mailboxevent WHERE target_id IS NULL AND dropped_at IS NULL",
    "words of mail for nobody": """
        SELECT id FROM sessions_app_mailboxevent
        WHERE target_id IS NULL AND (summary || detail || source_key <> '' OR artifacts <> '[]')
    """,
    "a delivery of nothing": """
        SELECT id FROM sessions_app_delivery WHERE state = 'pending' AND (session_id IS NULL OR message_id IS NULL)
    """,
    "a session that is being deleted by nobody": "SELECT id FROM sessions_app_session WHERE state = 'deleting'",
    "a turn in a session without its agent's owner": """
        SELECT s.id FROM sessions_app_session s JOIN sessions_app_agent a ON a.id = s.agent_id
        WHERE a.owner_id <> s.owner_id
    """,
    "an agent without a primary session": """
        SELECT id FROM sessions_app_agent a WHERE NOT EXISTS
          (SELECT 1 FROM sessions_app_session s WHERE s.agent_id = a.id AND s.key = 'unified:default')
    """,
}


def orphans() -> dict[str, list[Any]]:
    """What no delete may leave behind, by name; to be asked when nobody is at work."""
    found = {name: selected(text) for name, text in (ORPHANS | _dangling()).items()}
    return {name: ids for name, ids in found.items() if ids}


def _dangling() -> dict[str, str]:
    """Every reference to a row that is not there, whether the database holds it or not."""
    statements = {}
    for model in [
        *apps.get_app_config("sessions_app").get_models(),
        *apps.get_app_config("automations").get_models(),
    ]:
        for field in model._meta.concrete_fields:
            if isinstance(field, models.ForeignKey) and field.name != "created_by_turn":  # kept on purpose
                target, name = field.related_model._meta, f"{model._meta.label}.{field.name} leads nowhere"
                statements[name] = (
                    f'SELECT a."{field.column}" FROM "{model._meta.db_table}" a'
                    f' LEFT JOIN "{target.db_table}" b ON b."{target.pk.column}" = a."{field.column}"'
                    f' WHERE a."{field.column}" IS NOT NULL AND b."{target.pk.column}" IS NULL'
                )
    return statements


def selected(text: str, *values: Any) -> list[Any]:
    """The first column of what a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return [row[0] for row in cursor.fetchall()]


def in_thread(action: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run on a connection of its own; the list gets the result or the exception."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(action())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            came.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, came
