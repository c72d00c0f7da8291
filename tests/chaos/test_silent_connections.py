"""Connections that go silent without an end cost a bounded time, then others are used (rule 10.0)."""

import os
import select
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction

from automations.models import RunRecord
from config.database import database_settings
from sessions_app.postgres.connection import (
    FRESH_SECONDS,
    Pool,
    connect_directly,
    disable_time_limits,
    enable_time_limits,
    no_time_limit,
    time_limit,
)
from sessions_app.postgres.retry import retry_while_down
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.lock import SessionLocks
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.proxy import Proxy
from tests.races import backends_that
from tests.talk import ended, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.0")]

WITHIN = 30.0  # seconds: the rule


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    """Stands before PostgreSQL."""
    made = Proxy(os.environ["DATABASE_URL"])
    yield made
    made.end()


def pool_at(url: str, size: int = 4) -> Pool:
    options = database_settings(url, size)["OPTIONS"]
    limits = options.pop("pool") | {"min_size": size}
    return Pool(conninfo=url.partition("?")[0], kwargs=options | {"autocommit": True}, open=True, **limits)


def pooled(pool: Pool, *, idle: float = FRESH_SECONDS) -> list[Any]:
    """Every connection of a full pool, taken and given back, so many seconds ago."""
    pool.wait(10)
    taken = [pool.getconn() for _ in range(pool.max_size)]
    for each in taken:
        pool.putconn(each)
        each.returned_at -= idle
    return taken


def tcp(link: psycopg.Connection[Any]) -> list[int]:
    """As the kernel has them: keepalive idle, interval, count, user timeout."""
    with socket.socket(fileno=os.dup(link.fileno())) as plug:
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        assert plug.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return [plug.getsockopt(socket.IPPROTO_TCP, name) for name in names]


def shown(link: psycopg.Connection[Any], name: str) -> str:
    row = link.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def test_both_ends_of_every_connection_detect_a_lost_peer() -> None:
    with connection.cursor() as cursor, connect_directly(settings.DATABASE_LOCK_URL) as direct:
        for link in (cursor.connection, direct):
            assert tcp(link) == [5, 2, 3, 15_000]
            assert shown(link, "tcp_user_timeout") == "15000"
            assert shown(link, "tcp_keepalives_idle") == "5"
        assert shown(cursor.connection, "idle_in_transaction_session_timeout") == "20s"


def test_what_the_address_says_wins_over_the_defaults() -> None:
    asked = "keepalives_idle=9&tcp_user_timeout=4000&options=-c%20tcp_user_timeout%3D7000"
    url = f"{os.environ['DATABASE_URL']}?{asked}"
    pool = pool_at(url, 1)
    with connect_directly(url) as direct:
        assert tcp(direct) == [9, 2, 3, 4_000]
        assert shown(direct, "tcp_user_timeout") == "7000"
    with pool.connection() as link:
        assert tcp(link) == [9, 2, 3, 4_000]
        assert shown(link, "tcp_user_timeout") == "7000"
    pool.close()


@pytest.mark.parametrize("dropping", [False, pytest.param(True, marks=pytest.mark.full)])
def test_an_unanswered_statement_ends_in_time_and_is_named(
    proxy: Proxy, settings: Any, dropping: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings.RONDO_DATABASE_SECONDS = 1
    link = connect_directly(proxy.url)
    proxy.silence(dropping=dropping)
    with pytest.raises(psycopg.OperationalError, match=r"did not respond to INSERT within \d\.\d s"):
        link.execute("INSERT INTO nowhere VALUES (%s)", ["a secret"])
    assert link.closed
    assert "database_call_ended" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.long("connections go silent until a bound has passed")
def test_dead_connections_of_a_pool_are_dropped_together(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pool_at(proxy.url)
    old = pooled(pool)
    assert proxy.silence() == len(old)
    fresh = pool.getconn()
    assert fresh not in old
    assert caplog.text.count("database_call_ended") == 1, "no other dead one was waited for"
    until(lambda: all(each.closed for each in old), 5)
    pool.putconn(fresh)
    pool.close()


def test_a_connection_that_was_just_used_is_given_without_a_question(proxy: Proxy) -> None:
    pool = pool_at(proxy.url)
    old = pooled(pool, idle=-WITHIN)  # just now, however slow this machine is
    proxy.silence()
    assert pool.getconn() in old, "a question would have found it silent"
    pool.close(0)


def test_a_bound_covers_all_waiting_within_it_together(proxy: Proxy) -> None:
    pool = pool_at(proxy.url, 1)
    pooled(pool)
    proxy.stop()
    began = time.monotonic()
    with time_limit(0.5):
        with pytest.raises(psycopg.OperationalError):
            pool.getconn()
        with pytest.raises(psycopg.OperationalError), time_limit(60.0):
            pool.getconn()
    assert time.monotonic() - began < 5
    pool.close(0)


def test_only_migrations_and_long_work_may_take_longer(settings: Any) -> None:
    settings.RONDO_DATABASE_SECONDS = 0.5

    def sleep(seconds: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s) /* asleep */", [seconds])

    with time_limit(0.2), no_time_limit():
        sleep(0.3)
    disable_time_limits()
    try:
        sleep(0.7)
    finally:
        enable_time_limits()
    with pytest.raises(OperationalError), time_limit(0.3):
        sleep(60)
    connection.close()

    asleep = "query LIKE '%/* asleep */%' AND pid <> pg_backend_pid()"
    until(lambda: not backends_that(asleep), 10, "the server ends a statement that was given up")


def test_a_transaction_the_server_ended_is_retried_like_an_outage() -> None:
    """A process that stood still in a transaction goes on with another connection; its commit is done again."""
    began = 0

    def work() -> int:
        nonlocal began
        began += 1
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL idle_in_transaction_session_timeout = %s", ["50ms" if began == 1 else "0"]
            )
            if began == 1:
                link = cursor.connection
                until(lambda: select.select([link.fileno()], [], [], 0)[0], 10, "the server has ended it")
            cursor.execute("SELECT 7")
            return int(cursor.fetchone()[0])

    assert retry_while_down(work) == 7
    assert began == 2


def test_connections_to_a_demoted_server_are_not_reused(settings: Any) -> None:
    pool = pool_at(settings.DATABASE_LOCK_URL, 2)
    old = pooled(pool)
    for each in old:
        each.execute("SET default_transaction_read_only = on")  # as on a primary that was demoted
    with pytest.raises(psycopg.OperationalError, match="read-only"), pool.connection() as link:
        link.execute("CREATE TABLE nowhere ()")
    until(lambda: all(each.closed for each in old), 5)
    with pool.connection() as link:
        assert shown(link, "transaction_read_only") == "off"
    pool.close()


def test_a_silent_connection_frees_its_locks_for_the_next(proxy: Proxy, settings: Any) -> None:
    settings.RONDO_DATABASE_SECONDS = 1
    locks = SessionLocks(proxy.url)
    locks.reconnect()
    handle = locks.try_hold(session := uuid.uuid4())
    assert handle is not None
    proxy.silence()
    with pytest.raises(psycopg.Error):
        locks.execute("SELECT 1")
    locks.release(handle)
    locks.reconnect()
    assert locks.try_hold(session) is not None, "the server still held the old connection's locks"
    locks.close()


@pytest.mark.full
@pytest.mark.parametrize("dropping", [False, True])
def test_turns_and_jobs_recover_soon_after_all_connections_go_silent(
    proxy: Proxy, fleet: Fleet, model_server: ModelServer, person_with_server: Person, dropping: bool
) -> None:
    fleet.environ |= {
        "DATABASE_URL": f"{proxy.url}?options=-c%20idle_in_transaction_session_timeout%3D2s",
        "DATABASE_LOCK_URL": proxy.url,
        "RONDO_DATABASE_SECONDS": "1",
        "RONDO_WORKER_LOST_SECONDS": "15",
    }
    worker, _beat = fleet.worker(), fleet.beat()
    new(person_with_server.session(), schedule=EVERY_SECOND)
    until(lambda: RunRecord.objects.count() >= 2)
    turns = [
        receive(person_with_server.session().pk, MessageInput(content=f"[[hold:all]] number {number}"))
        for number in range(4)
    ]
    until(lambda: model_server.held.get("all") == 4)
    before = RunRecord.objects.order_by("-pk").values_list("pk", flat=True)[0]
    began = time.monotonic()
    assert proxy.silence(dropping=dropping) >= 6, "pools, lock, LISTEN and NOTIFY of worker and beat"
    model_server.release("all")
    until(lambda: all(ended(turn) for turn in turns), WITHIN)
    until(lambda: RunRecord.objects.filter(pk__gt=before, state="succeeded").exists(), WITHIN)
    assert {turn.state for turn in turns} == {"succeeded"}
    assert {turn.rescues for turn in turns} == {0}
    worker.wait_for("lock_connection_made epoch=2", WITHIN)
    worker.wait_for("listen_lost", WITHIN)
    assert time.monotonic() - began < WITHIN
    late = receive(person_with_server.session().pk, MessageInput(content="[[hold:late]] cancel me"))
    until(lambda: model_server.held.get("late"))
    cancel_turn(late.pk)
    until(lambda: ended(late))
    assert late.state == "cancelled"


@pytest.mark.full
def test_a_worker_finds_another_connection_when_its_broker_is_silent(fleet: Fleet, person: Person) -> None:
    broker = Proxy(os.environ["CELERY_BROKER_URL"])
    fleet.worker(CELERY_BROKER_URL=broker.url)
    session = person.session()
    say(session, "hello")
    assert broker.silence(dropping=True) > 0
    turn = receive(session.pk, MessageInput(content="are you there?"))
    until(lambda: ended(turn), WITHIN)
