"""A turn finds its run by its key, however many are open, also before the statistics know of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.models import JobClock, RunRecord, RunState
from sessions_app.models import TurnState
from sessions_app.turns.claim import claim_next
from sessions_app.turns.lock import Handle
from sessions_app.turns.run import _finish
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.messages import a_worker
from tests.conftest import Person
from tests.many_rows import insert_many
from tests.plans import Watch

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
