"""Beat finds due jobs by the partial index, however many jobs there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from automations.firing import fire_jobs, fire_messages, next_work
from automations.models import JobClock, ScheduledMessage
from tests.many_rows import insert_many


@pytest.mark.django_db
def test_a_batch_after_an_outage_reads_only_its_own_rows() -> None:
    now = datetime.now(UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        insert_clocks("now() + interval '1 day' + n * 7919 % 30000 * interval '1 minute'")
        cursor.execute("ANALYZE automations_jobclock")  # the statistics know nothing of the outage
        JobClock.objects.filter(next_run_at__lt=now + timedelta(days=8)).update(
            next_run_at=now - timedelta(hours=1)
        )
        cursor.execute(f"EXPLAIN {fire_jobs.CLAIM.text}", fire_jobs.CLAIM._constants | {"limit": 100})
        lines = [str(row[0]) for row in cursor.fetchall()]
        transaction.set_rollback(True)
    assert any("Index Scan using jobclock_due" in line for line in lines), "\n".join(lines)
    assert not any("Sort" in line for line in lines), "\n".join(lines)


@pytest.mark.django_db
def test_polling_reads_no_jobs_when_none_are_due() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        insert_clocks("now() + interval '1 day' + n * interval '1 minute'")
        cursor.execute("ANALYZE automations_jobclock")
        cursor.execute(f"EXPLAIN {next_work.LOOK.text}", next_work.LOOK._constants)
        lines = [str(row[0]) for row in cursor.fetchall()]
        transaction.set_rollback(True)
    assert not any("Seq Scan on automations_jobclock" in line for line in lines), "\n".join(lines)


def insert_clocks(next_run_at: str) -> None:
    """The foreign key to the jobs is checked at a commit that never comes."""
    insert_many(JobClock(), 30_000, job_id="'job ' || n", next_run_at=next_run_at)


@pytest.mark.django_db
def test_due_messages_and_their_queue_heads_use_separate_indexes() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        # the foreign key to the sessions is checked at a commit that never comes
        insert_many(
            ScheduledMessage(message_text="x"),
            30_000,
            id="'message ' || n",
            session_id="lpad(to_hex(n % 3000), 32, '0')::uuid",
            send_at="now() + interval '1 day' + n * interval '1 minute'",
        )
        cursor.execute("ANALYZE automations_scheduledmessage")
        plans = {}
        for name, statement, params in (
            ("claim", fire_messages.CLAIM, {"limit": 100}),
            ("look", next_work.LOOK, {}),
        ):
            cursor.execute(f"EXPLAIN {statement.text}", statement._constants | params)
            plans[name] = "\n".join(str(row[0]) for row in cursor.fetchall())
        transaction.set_rollback(True)
    for name, plan in plans.items():
        assert "scheduled_due" in plan, plan
        assert "Seq Scan on automations_scheduledmessage" not in plan, plan
        assert name == "look" or "scheduled_head" in plan, plan
