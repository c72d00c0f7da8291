"""Pooled connections that break: they are replaced together, and cost no model call (rule 10.0)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings

from agent_core.llm.protocol import ModelCall, ModelReply
from sessions_app.postgres.connection import FRESH_SECONDS
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import REASON, RESPOND, plan, revision, says, tool
from tests.chaos.test_silent_connections import pool_at, pooled
from tests.inside import Inside, Script, call, makes
from tests.proxy import Proxy

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
