"""Beat finds due jobs and a turn its run by an index, however many there are."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from automations.firing import fire_jobs
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import JobClock, RunRecord, RunState
from sessions_app.models import Session, TurnState
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.messages import run_turn
from tests.many_rows import insert_many
from tests.plans import Watch


@pytest.mark.full
@pytest.mark.django_db
def test_a_batch_after_an_outage_reads_only_its_own_rows() -> None:
    now = datetime.now(UTC)
    later = "now() + interval '1 day' + n * 7919 % 30000 * interval '1 minute'"
    with transaction.atomic(), connection.cursor() as cursor:
        # the foreign key to the jobs is checked at a commit that never comes
        insert_many(JobClock(), 30_000, job_id="'job ' || n", next_run_at=later)
        cursor.execute("ANALYZE automations_jobclock")  # the statistics know nothing of the outage
        soon = JobClock.objects.filter(next_run_at__lt=now + timedelta(days=8))
        soon.update(next_run_at=now - timedelta(hours=1))
        with CaptureQueriesContext(connection) as made:
            fire_jobs._claim(100)
        cursor.execute(f"EXPLAIN {made[0]['sql']}")
        plan = "\n".join(str(row[0]) for row in cursor.fetchall())
        transaction.set_rollback(True)
    assert "Index Scan using jobclock_due" in plan, plan
    assert "Sort" not in plan, plan


OPEN = 2_000


@pytest.mark.parametrize("were_counted", [False, True], ids=["never analysed", "analysed when empty"])
def test_a_turn_does_not_read_runs_of_others(session: Session, broker: str, *, were_counted: bool) -> None:
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
        turn = run_turn(session)
    assert not watch.faults, watch.report()
    assert turn.state == TurnState.SUCCEEDED
    assert RunRecord.objects.filter(state=RunState.SUCCEEDED).count() == 1
