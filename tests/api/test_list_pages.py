"""Pages of lists over all of a user's sessions: both orders, rows of one instant, and how little is read."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from automations.models import CronJob, JobClock, RunRecord
from sessions_app.models import Agent, Delivery, Lane, Turn, TurnKind
from sessions_app.postgres import search
from tests.api.conftest import Caller
from tests.api.test_lists import NOON, OF_ALL_SESSIONS, delivery, found, pages, run, turn
from tests.api.test_statements import ALWAYS, statements
from tests.many_rows import insert_many
from tests.plans import Watch

pytestmark = pytest.mark.django_db

MANY, BATCH = 20_000, 1_200
MESSAGES = """
INSERT INTO sessions_app_message (session_id, seq, role, content, parts, metadata, turn_id)
SELECT session_id, row_number() OVER (ORDER BY id), 'assistant', 'Hello', '{}', '{}', id
FROM sessions_app_turn WHERE session_id = %s"""


@pytest.mark.rule("10.0")
def test_a_search_reads_the_newest_only(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_SEARCHED", 3)
    session = ada.session()
    turns = [turn(session, minute) for minute in range(5)]
    assert found(ada, "/api/turns/?search=hello") == turns[:1:-1]
    assert found(ada, "/api/turns/?search=hello&order=asc") == turns[2:]


def test_rows_of_one_instant_are_listed_once_in_both_directions(ada: Caller) -> None:
    """More of them than a cursor may skip: a batch of automations gives all its turns one time."""
    insert_many(
        Turn(session_id=ada.session(), kind=TurnKind.AUTOMATION, lane=Lane.AUTO, queued_at=NOON), BATCH
    )
    for order in ("asc", "desc"):
        walked = list(pages(ada, f"/api/turns/?page_size=200&order={order}"))
        ids = [each["id"] for page in walked for each in page["results"]]
        assert ids == sorted(set(ids), reverse=order == "desc")
        assert len(ids) == BATCH
        back = [
            [each["id"] for each in page["results"]] for page in pages(ada, walked[-2]["next"], "previous")
        ]
        assert [each for page in reversed(back) for each in page] == ids


def fill(caller: Caller, count: int, jobs: int) -> None:
    """Many turns, runs, deliveries and automations of a user in five hours, and one of each that failed before."""
    session = caller.session()
    job = caller.automation(session)["id"]
    at = f"timestamptz '2026-11-20T12:00:00Z' + n * interval '{18_000 / count} seconds'"
    ended: dict[str, Any] = {"session_id": session, "state": "succeeded", "finished_at": NOON}
    insert_many(Turn(**ended, kind=TurnKind.MESSAGE, lane=Lane.PEOPLE), count, queued_at=at)
    insert_many(RunRecord(**ended, job_id=job), count, run_id=f"'{job}:' || n", scheduled_for=at)
    with connection.cursor() as cursor:
        cursor.execute(MESSAGES, [session])
    sent = Delivery(session_id=session, session_key="k", channel="email", state="sent", ended_at=NOON)
    said = f"(SELECT id FROM sessions_app_message WHERE session_id = '{session}' AND seq = n + 1)"
    insert_many(
        sent,
        count,
        idempotency_key=f"'{session}' || n",
        created_at=at,
        address="'a' || n",
        message_id=said,
    )
    of: dict[str, Any] = {"agent": Agent.objects.get(owner=caller.user), "session_id": session}
    cron = CronJob(**of, name="x", schedule_kind="cron", expr="0 9 * * *", updated_at=NOON)
    insert_many(cron, jobs, id=f"'{job}' || n", created_at=at)
    insert_many(JobClock(), jobs, job_id=f"'{job}' || n")
    turn(session, -60, state="failed", finished_at=NOON)
    run(job, -60, state="failed")
    delivery(session, -60, state="failed", last_error="refused")


@pytest.mark.full
@pytest.mark.rule("10.0")
def test_a_list_reads_its_page_and_nothing_of_others(ada: Caller, bob: Caller) -> None:
    """Among the rows of somebody who has many more, and many of one's own."""
    fill(ada, MANY // 2, MANY // 25)
    fill(bob, MANY, MANY)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    names = ("sessions_app_turn", "sessions_app_delivery", "automations_runrecord", "automations_cronjob")
    watch = Watch(growing=frozenset(names))
    middle = "2026-11-20T13:00:00Z"
    for address in OF_ALL_SESSIONS:
        state = "enabled=true" if "automations" in address else "state=failed"
        queries = ("", "order=asc", state, f"since={middle}&order=asc", f"until={middle}", "agent=demo")
        for query in queries:
            with watch.scene(f"{address}?{query}", most_read=400):
                assert ada.get(f"{address}?page_size=20&{query}").json()["results"], (address, query)
        with watch.scene(f"{address}?search", most_read=search.MOST_SEARCHED + 100):
            ada.get(f"{address}?page_size=20&search=nothing+like+it")
        page = ada.get(f"{address}?page_size=5").json()
        for each in (address, page["next"]):
            assert len(statements(ada, "GET", each)) == ALWAYS + 2  # which rows, and the rows
        assert len(statements(ada, "GET", f"{address}?search=x")) <= ALWAYS + 3
    assert watch.seen > 20
    assert not watch.faults, watch.report()
