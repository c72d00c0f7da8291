"""Connections that break, that have odd defaults, and whose prepared statements are of older tables (rule 10.0)."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import OperationalError, connection, connections
from psycopg import sql

from agent_core.llm.protocol import ModelCall, ModelReply
from sessions_app.postgres.connection import FRESH_SECONDS, connect_directly
from sessions_app.postgres.notify import EVENTS, Publisher, Try
from sessions_app.postgres.statements import Statement
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import REASON, RESPOND, plan, revision, says, tool
from tests.chaos.test_silent_connections import pool_at, pooled
from tests.conftest import Person
from tests.deletion import caller
from tests.inside import Inside, Script, call, during, makes
from tests.proxy import Proxy
from tests.up import run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.0")]


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    """Stands before PostgreSQL."""
    made = Proxy(os.environ["DATABASE_URL"])
    yield made
    made.end()


def end_pooled() -> None:
    """The server ends every connection but those for locks, LISTEN and NOTIFY, and waits until they are gone."""
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name NOT LIKE 'rondo%'"
        )


@pytest.mark.parametrize("idle", [0, FRESH_SECONDS])
def test_one_broken_connection_replaces_all_idle_ones(proxy: Proxy, idle: float) -> None:
    pool = pool_at(proxy.url)
    old = pooled(pool, idle=idle)
    assert proxy.cut() == len(old)
    for _ in old:
        with pool.connection() as link:
            assert link not in old
            link.execute("SELECT 1")
    pool.close()


def test_a_failed_statement_replaces_no_connection() -> None:
    pool = pool_at(settings.DATABASE_LOCK_URL)
    old = pooled(pool)
    with pool.connection() as first:
        first.execute("SET statement_timeout = '20ms'")
        with pytest.raises(psycopg.OperationalError):
            first.execute("SELECT pg_sleep(5)")
        first.execute("RESET statement_timeout")
    assert pooled(pool) != []
    assert not any(each.closed for each in old)
    pool.close()


def breaking(stream: Any) -> Any:
    """All pooled connections break while the model answers."""

    async def broken(model: Script, asked: ModelCall) -> AsyncIterator[str | ModelReply]:
        end_pooled()
        async for piece in stream(model, asked):
            yield piece

    return broken


@pytest.mark.rule("1.9")
@pytest.mark.parametrize("planned", [False, pytest.param(True, marks=pytest.mark.full)])
def test_connections_that_break_in_a_model_call_do_not_repeat_it(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, planned: bool
) -> None:
    monkeypatch.setattr(Script, "stream", breaking(Script.stream))
    session = inside.person.session()
    if planned:
        inside.planner()
        inside.model.answer_with(
            plan(tool("count", name="once"), REASON, RESPOND),
            says("Once."),
            revision("continue"),
            says("Counted."),
        )
    else:
        inside.model.answer_with(makes(call("count", name="once")), says("Counted."))
    turn = receive(session.pk, MessageInput(content="count once"))
    inside.run(session)
    turn.refresh_from_db()
    assert (turn.state, turn.attempt) == ("succeeded", 1), turn.error_detail
    assert len(inside.model.calls) == (5 if planned else 2)
    assert inside.did("once") == 1


@pytest.mark.parametrize("said", ["hello", "yes"])
def test_no_connection_is_held_while_a_model_answers(inside: Inside, said: str) -> None:
    own, held = connections["default"], []
    turn = inside.say(
        inside.person.session(), said, during(lambda: held.append(own.connection), ModelReply(text="Hello."))
    )
    assert (turn.state, held) == ("succeeded", [None])


DEFAULTS = {
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
}
VALUES = (datetime(2026, 2, 1, 12, tzinfo=UTC), timedelta(days=1, seconds=2), "茶", b"\x00\xff", r"a\n")


@pytest.fixture
def _odd_defaults() -> Iterator[None]:
    """As `ALTER ROLE … SET` does, for this database alone."""
    name = sql.Identifier(connection.settings_dict["NAME"])
    change = sql.SQL("ALTER DATABASE {} SET {} = {}")
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as own:
        for setting, value in DEFAULTS.items():
            own.execute(change.format(name, sql.Identifier(setting), sql.Literal(value)))
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        yield
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        own.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(name))


@pytest.mark.usefixtures("_odd_defaults")
def test_every_connection_sets_the_formats_that_the_server_relies_on(person: Person) -> None:
    read = "SELECT timestamptz '2026-02-01 12:00+00', interval '1 day 2 s', '茶', '\\x00ff'::bytea, 'a\\n'"
    isolation = "SELECT current_setting('transaction_isolation')"
    with connection.cursor() as cursor:
        cursor.execute(read)
        assert cursor.fetchone() == VALUES
        cursor.execute(isolation)
        assert cursor.fetchone() == ("read committed",)
    with connect_directly(settings.DATABASE_LOCK_URL) as own:
        assert own.execute(read).fetchone() == VALUES
        assert own.execute(isolation).fetchone() == ("read committed",)
    assert caller(person).get("/api/agents/").status_code == 200


@pytest.fixture
def elsewhere() -> Iterator[psycopg.Connection]:
    """Another connection, and a table that is not ours."""
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as other:
        other.execute("CREATE TABLE changing (name varchar(8))")
        other.execute("INSERT INTO changing VALUES ('before')")
        try:
            yield other
        finally:
            other.execute("DROP TABLE changing")


def test_a_migrated_column_costs_a_connection_and_nothing_more(elsewhere: psycopg.Connection) -> None:
    names = Statement(sa.select(sa.column("name")).select_from(sa.table("changing")), prepared=True)
    assert names.all() == [("before",)]
    elsewhere.execute("ALTER TABLE changing ALTER name TYPE varchar(9)")
    with pytest.raises(OperationalError):
        names.all()
    connection.close()  # as a worker does after this error
    assert names.all() == [("before",)]


PREPARES = """
import django
django.setup(set_prefix=False)
import sqlalchemy as sa
from django.db import connection
from sessions_app.postgres.statements import Statement
for _ in range(8):
    Statement(sa.select(sa.literal_column("1").label("one")), prepared=True).all()
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM pg_prepared_statements")
    print(cursor.fetchone()[0])
"""


@pytest.mark.parametrize(("lock_url", "prepared"), [("", 1), ("{url}?application_name=direct", 0)])
def test_nothing_is_prepared_where_locks_have_another_address(lock_url: str, prepared: int) -> None:
    url = os.environ["DATABASE_URL"]
    environ = os.environ | {
        "DATABASE_LOCK_URL": lock_url.format(url=url),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    done = run(sys.executable, "-c", PREPARES, env=environ)
    assert done.stdout.split() == [str(prepared)]


OWN = "of_this_test"  # a channel
SECONDS = 10.0  # longest wait for a notification


@contextmanager
def listening(*channels: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as listener:
        for channel in channels:
            listener.execute(f'LISTEN "{channel}"')
        yield listener


def heard(listener: psycopg.Connection[Any]) -> str:
    """What the test's publisher sends next; what others of this process send is passed over."""
    for notify in listener.notifies(timeout=SECONDS):
        if notify.channel == OWN or "our session" in notify.payload:
            return notify.payload
    raise AssertionError(f"nothing within {SECONDS} s")


def end_connection(publisher: Publisher, listener: psycopg.Connection[Any]) -> None:
    """As a restart of the server does, or an administrator."""
    assert publisher._connection is not None
    listener.execute("SELECT pg_terminate_backend(%s, 5000)", [publisher._connection.info.backend_pid])


def test_what_is_said_after_the_server_ended_the_connection_is_not_lost() -> None:
    """With it a revocation would be lost, and open streams would go on until their next check."""
    publisher = Publisher()
    with listening(OWN) as listener:
        publisher.notify(OWN, {"n": 1})
        assert heard(listener) == '{"n": 1}'
        publisher.flush(SECONDS)
        end_connection(publisher, listener)
        publisher.notify(OWN, {"n": 2})
        assert heard(listener) == '{"n": 2}'
        publisher.flush(SECONDS)
    publisher.close()


def test_a_running_answer_is_sent_again_when_a_process_lacks_a_part() -> None:
    publisher, of = Publisher(), Try("our session", 1, attempt=1)
    with listening(OWN, EVENTS) as listener:
        for text, place in (("one ", 0), ("two", 4)):
            publisher.delta(of, text)
            assert json.loads(heard(listener))["at"] == place
        publisher.repeat(1)
        assert json.loads(heard(listener))["text"] == "one two"
        publisher.forget(1)
        publisher.flush(SECONDS)
        publisher.repeat(1)
        publisher.notify(OWN, {"n": 2})
        assert heard(listener) == '{"n": 2}'
    publisher.close()


def test_a_connection_is_not_closed_while_it_sends() -> None:
    """That would end the process."""
    publisher = Publisher()
    with listening(OWN) as listener:
        for number in range(10):
            publisher.notify(OWN, {"n": number})
            assert heard(listener) == f'{{"n": {number}}}'
            publisher.close()


def test_a_piece_of_an_answer_is_never_sent_twice() -> None:
    """Nobody knows whether it was sent before the connection ended, and readers would show it twice."""
    publisher = Publisher()
    with listening(OWN, EVENTS) as listener:
        publisher.notify(OWN, {"n": 1})
        assert heard(listener) == '{"n": 1}'
        publisher.flush(SECONDS)
        end_connection(publisher, listener)
        publisher.delta(Try("our session", 1, attempt=1), "a piece")
        publisher.delta(Try("our session", 1, attempt=2), "")  # which stops nothing
        publisher.flush(SECONDS)
        publisher.notify(OWN, {"n": 2})
        assert heard(listener) == '{"n": 2}'
    publisher.close()
