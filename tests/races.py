"""Races told in order: actions are held up at a row, one behind the other, and then let go; and what may be left.

Each action runs on a connection of its own. PostgreSQL lets those who wait for one row go on in the order they came.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.apps import apps
from django.conf import settings
from django.db import connection, models

from tests.fleet import until
from tests.queries import queries

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
    with with_trigger("AFTER INSERT ON automations_runrecord FOR EACH ROW", statement):
        yield


@contextmanager
def with_trigger(when: str, statement: str, kind: str = "TRIGGER") -> Iterator[None]:
    """The database does this, too, at such a change."""
    function = f"RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NEW; END $$"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION triggered() {function}")
        cursor.execute(f"CREATE {kind} triggered {when} EXECUTE FUNCTION triggered()")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION triggered() CASCADE")


@contextmanager
def only_rows(model: type[models.Model], condition: str) -> Iterator[None]:
    """The database stores no other row of it."""
    table = f"ALTER TABLE {model._meta.db_table}"
    with connection.cursor() as cursor:
        cursor.execute(f"{table} ADD CONSTRAINT only_such CHECK ({condition}) NOT VALID")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"{table} DROP CONSTRAINT only_such")


def backends_that(condition: str) -> list[int]:
    """Who of those connected to the test database are so."""
    where = f"datname = current_database() AND {condition}"
    return selected(f"SELECT pid FROM pg_stat_activity WHERE {where}")


def waiting() -> int:
    """How many backends wait for another one's lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees the first look for good
    return len(backends_that("cardinality(pg_blocking_pids(pid)) > 0"))


def orphans() -> dict[str, list[Any]]:
    """What no delete may leave behind, by name; to be asked when nobody is at work."""
    found = {name: selected(text) for name, text in (queries("orphans") | _dangling()).items()}
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
