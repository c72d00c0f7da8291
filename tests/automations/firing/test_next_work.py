"""Beat finds due jobs and a turn its run by an index, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from automations.beat import seconds_to_next_work
from automations.firing import fire_jobs, fire_messages
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import JobClock, RunRecord, RunState, ScheduledMessage
from sessions_app.models import TurnState
from sessions_app.turns.claim import claim_next
from sessions_app.turns.lock import Handle
from sessions_app.turns.run import _finish
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.messages import a_worker
from tests.conftest import Person
from tests.many_rows import insert_many
from tests.plans import Watch


@pytest.mark.django_db
def test_a_batch_after_an_outage_reads_only_its_own_rows() -> None:
    now = datetime.now(UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        insert_clocks("now() + interval '1 day' + n * 7919 % 30000 * interval '1 minute'")
        cursor.execute("ANALYZE automations_jobclock")  # the statistics know nothing of the outage
        JobClock.objects.filter(next_run_at__lt=now + timedelta(days=8)).update(
            next_run_at=now - timedelta(hours=1)
        )
        plan, _held_back = plans_of(lambda: fire_jobs._claim(100))
        transaction.set_rollback(True)
    assert "Index Scan using jobclock_due" in plan, plan
    assert "Sort" not in plan, plan


@pytest.mark.django_db
def test_polling_reads_no_jobs_when_none_are_due() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        insert_clocks("now() + interval '1 day' + n * interval '1 minute'")
        cursor.execute("ANALYZE automations_jobclock")
        plans = plans_of(seconds_to_next_work)
        transaction.set_rollback(True)
    assert len(plans) == 4
    assert not any("Seq Scan on automations_jobclock" in plan for plan in plans), "\n".join(plans)


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
        claim, *_ = plans_of(lambda: fire_messages._claim(100))
        look = plans_of(seconds_to_next_work)[-1]
        transaction.set_rollback(True)
    for plan in (claim, look):
        assert "scheduled_due" in plan, plan
        assert "Seq Scan on automations_scheduledmessage" not in plan, plan
    assert "scheduled_head" in claim, claim


def plans_of(do: Callable[[], Any]) -> list[str]:
    """The plans of the statements that this makes."""
    with CaptureQueriesContext(connection) as made:
        do()
    plans = []
    with connection.cursor() as cursor:
        for statement in made.captured_queries:
            cursor.execute(f"EXPLAIN {statement['sql']}")
            plans.append("\n".join(str(row[0]) for row in cursor.fetchall()))
    return plans


OPEN = 2_000


@pytest.mark.parametrize("were_counted", [False, True], ids=["never analysed", "analysed when empty"])
def test_an_automations_turn_does_not_read_the_runs_of_others(
    person: Person, broker: str, *, were_counted: bool
) -> None:
    session = person.session()
    job = due_job(session)
    run = RunRecord(job=job, state=RunState.QUEUED, session=session, snapshot={"policy": {}})

    def fill() -> None:
        insert_many(run, OPEN, run_id="'run ' || n", scheduled_for="now() - n * interval '1 minute'")

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE automations_runrecord CASCADE")  # forgets the statistics, too
        if were_counted:
            fill()
            # the worst that statistics can say: there are pages, and no row is in them
            cursor.execute("DELETE FROM automations_runrecord")
            cursor.execute("ANALYZE automations_runrecord")
    fill()
    JobClock.objects.filter(job=job).update(next_run_at=Now() - timedelta(seconds=1))
    assert fire_due_jobs().queued == 1
    watch = Watch(growing=frozenset({"automations_runrecord"}))
    with transaction.atomic(), watch.scene("turn", most_read=OPEN // 10):
        with connection.cursor() as cursor:
            # earlier tests may have left statistics of an empty table: which index is taken is the question here
            cursor.execute("SET LOCAL enable_seqscan = off")
        turn = claim_next(session.pk, a_worker(), auto_allowed=True)
        assert turn is not None
        handle = Handle(session_id=session.pk)
        handle.turn_id, handle.claim = turn.pk, turn.claim
        _finish(handle, turn)
    assert not watch.faults, watch.report()
    turn.refresh_from_db()
    assert turn.state == TurnState.SUCCEEDED
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM automations_runrecord WHERE state = 'succeeded'")
        assert cursor.fetchone() == (1,)
