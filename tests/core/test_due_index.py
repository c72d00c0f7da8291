"""Beat finds due jobs by the partial index, however many jobs there are."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from automations import ahead, due, due_messages
from automations.models import JobClock, ScheduledMessage
from sessions_app.sql import Statement


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "params"),
    [(due.CLAIM, {"limit": 100}), (due.PEEK, {"limit": 100}), (ahead.LOOK, {})],
    ids=["claim", "peek", "look"],
)
def test_due_jobs_are_found_by_their_index(statement: Statement, params: dict[str, int]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SET LOCAL enable_seqscan = off"
        )  # the table is empty: what matters is what could be used
        cursor.execute(f"EXPLAIN {statement.text}", statement._constants | params)
        lines = [str(row[0]) for row in cursor.fetchall()]
    assert any("jobclock_due" in line for line in lines), "\n".join(lines)


@pytest.mark.django_db
@pytest.mark.parametrize("statement", [due.CLAIM, due.PEEK], ids=["claim", "peek"])
def test_after_an_outage_a_batch_reads_itself_not_all_that_is_overdue(statement: Statement) -> None:
    now = datetime.now(UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        JobClock.objects.bulk_create(  # the foreign key to the jobs is checked at a commit that never comes
            (
                JobClock(job_id=f"job {n}", next_run_at=now + timedelta(days=1, minutes=n * 7919 % 30_000))
                for n in range(30_000)
            ),
            5_000,
        )
        cursor.execute("ANALYZE automations_jobclock")  # the statistics know nothing of the outage
        JobClock.objects.filter(next_run_at__lt=now + timedelta(days=8)).update(
            next_run_at=now - timedelta(hours=1)
        )
        cursor.execute(f"EXPLAIN {statement.text}", statement._constants | {"limit": 100})
        lines = [str(row[0]) for row in cursor.fetchall()]
        transaction.set_rollback(True)
    assert any("Index Scan using jobclock_due" in line for line in lines), "\n".join(lines)
    assert not any("Sort" in line for line in lines), "\n".join(lines)


@pytest.mark.django_db
def test_a_look_at_many_jobs_of_which_none_is_due_reads_none_of_them() -> None:
    now = datetime.now(UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        JobClock.objects.bulk_create(  # the foreign key to the jobs is checked at a commit that never comes
            (
                JobClock(job_id=f"job {n}", next_run_at=now + timedelta(days=1, minutes=n))
                for n in range(30_000)
            ),
            5_000,
        )
        cursor.execute("ANALYZE automations_jobclock")
        cursor.execute(f"EXPLAIN {ahead.LOOK.text}", ahead.LOOK._constants)
        lines = [str(row[0]) for row in cursor.fetchall()]
        transaction.set_rollback(True)
    assert not any("Seq Scan on automations_jobclock" in line for line in lines), "\n".join(lines)


@pytest.mark.django_db
def test_due_messages_are_found_by_their_index_and_their_heads_by_another() -> None:
    now = datetime.now(UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        ScheduledMessage.objects.bulk_create(  # the foreign key to the sessions is checked at a commit that never comes
            (
                ScheduledMessage(
                    session_id=uuid.UUID(int=n % 3_000),
                    message_text="x",
                    send_at=now + timedelta(days=1, minutes=n),
                )
                for n in range(30_000)
            ),
            5_000,
        )
        cursor.execute("ANALYZE automations_scheduledmessage")
        plans = {}
        for name, statement, params in (
            ("claim", due_messages.CLAIM, {"limit": 100}),
            ("peek", due_messages.PEEK, {"limit": 100}),
            ("look", ahead.LOOK, {}),
        ):
            cursor.execute(f"EXPLAIN {statement.text}", statement._constants | params)
            plans[name] = "\n".join(str(row[0]) for row in cursor.fetchall())
        transaction.set_rollback(True)
    for name, plan in plans.items():
        assert "scheduled_due" in plan, plan
        assert "Seq Scan on automations_scheduledmessage" not in plan, plan
        assert name == "look" or "scheduled_head" in plan, plan


@pytest.mark.django_db
def test_what_firing_writes_has_no_index_beyond_those_that_are_used() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tablename, indexname FROM pg_indexes"
            " WHERE tablename IN ('automations_jobclock', 'automations_runrecord', 'automations_cronjob',"
            " 'automations_scheduledmessage')"
        )
        found = cursor.fetchall()
    assert {name for table, name in found if table == "automations_jobclock"} == {
        "automations_jobclock_pkey",
        "jobclock_due",
        "jobclock_inline_due",  # of another set of rows: firing touches one of the two
    }
    assert not [name for _, name in found if name.endswith("_like")]
