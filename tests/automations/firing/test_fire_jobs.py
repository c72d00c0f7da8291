"""What happens between the statements of a batch (rule 4.4)."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from celery import Celery
from django.db import connection
from django.db.models.functions import Now

from automations.beat import LONGEST_RETRY, Scheduler
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.models import Session, Turn
from tests.automations.jobs.made import HOURLY, new, overdue
from tests.conftest import Person
from tests.races import before

pytestmark = pytest.mark.rule("4.4")


def due_job(session: Session, **fields: Any) -> CronJob:
    job = new(session, **({"message": "before", "schedule": HOURLY} | fields))
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    return job


def test_an_edit_just_before_the_claim_is_fired(person: Person) -> None:
    job = due_job(person.session())

    def edit() -> None:
        update_job(job.pk, {"message": "after", "timeout_seconds": 7})
        CronJob.objects.filter(pk=job.pk).update(has_read=True)  # as `record_provenance` does

    with before("SKIP LOCKED", edit) as came:
        assert fire_due_jobs().queued == 1
    assert came == [None]
    [turn] = Turn.objects.all()
    [run] = RunRecord.objects.filter(job=job)
    assert (turn.content, run.snapshot["message"], run.snapshot["revision"]) == ("after", "after", 2)
    assert turn.input.policy == {"timeout_seconds": 7}
    assert turn.input.read_before is True


def test_a_pause_just_before_the_claim_fires_nothing(person: Person) -> None:
    job = due_job(person.session())
    with before("SKIP LOCKED", lambda: update_job(job.pk, {"enabled": False})) as came:
        assert fire_due_jobs().claimed == 0
    assert came
    assert not Turn.objects.exists()


def test_an_archived_session_is_seen_after_the_claim(session: Session) -> None:
    due_job(session)
    archive = partial(Session.objects.filter(pk=session.pk).update, state="archived")
    with before('FROM "automations_cronjob"', archive) as came:
        assert fire_due_jobs().queued == 0
    assert came == [1]
    assert RunRecord.objects.get().reason == "session_closed"


def test_an_internal_session_deleted_meanwhile_loses_no_slot(person: Person) -> None:
    job = due_job(person.session())
    CronJob.objects.filter(pk=job.pk).update(session=None)  # as imported: a legacy job
    assert fire_due_jobs().queued == 1
    first = Session.objects.get(key=f"cron:{job.pk}").pk
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    RunRecord.objects.update(state="succeeded", finished_at=Now())

    def delete() -> None:
        RunRecord.objects.filter(session=first).update(session=None, turn=None)
        Session.objects.get(pk=first).delete()

    with before("INSERT INTO", delete) as came:
        assert fire_due_jobs().queued == 1
    assert came == [None]
    run = RunRecord.objects.get(state=RunState.QUEUED)
    assert run.session_id not in (None, first)
    assert Turn.objects.get().origin_run == run.pk


def test_jobs_of_one_batch_are_decided_each_by_its_own_runs(person: Person) -> None:
    given = {"busy": "skip", "free": "skip", "queueing": "queue"}
    jobs = {name: due_job(person.session(), message=name, overlap=each) for name, each in given.items()}
    assert fire_due_jobs().queued == 3
    ended = {"state": "succeeded", "finished_at": Now()}
    Turn.objects.filter(runs__job=jobs["free"]).update(started_at=Now(), **ended)
    RunRecord.objects.filter(job=jobs["free"]).update(**ended)
    JobClock.objects.update(next_run_at=Now())
    assert (fire_due_jobs().claimed, fire_due_jobs().claimed) == (3, 0)
    newest = {run.job_id: (run.state, run.reason) for run in RunRecord.objects.order_by("scheduled_for")}
    found = [newest[job.pk] for job in jobs.values()]
    assert found == [(RunState.SKIPPED, "overlap"), (RunState.QUEUED, ""), (RunState.SKIPPED, "queue_full")]
    for turn in Turn.objects.filter(state="queued"):
        assert turn.origin_run.startswith(f"{jobs[turn.content].pk}:")


def test_beat_waits_for_a_job_that_another_has_just_fired(person: Person) -> None:
    """The other beat may die before the job's next slot."""
    mine, theirs = due_job(person.session()), due_job(person.session())
    JobClock.objects.filter(job=theirs).update(next_run_at=Now() - timedelta(seconds=1))

    def fire() -> None:
        assert fire_due_jobs(1).queued == 1
        JobClock.objects.filter(job=theirs).update(next_run_at=Now() + timedelta(seconds=20))

    with before("SKIP LOCKED", fire) as came:
        wait = Scheduler(Celery("test"), lazy=True)._fire_due()
    assert came == [None]
    assert {run.job_id for run in RunRecord.objects.all()} == {mine.pk, theirs.pk}
    assert 15 < wait <= 20


def test_beat_pauses_between_the_slots_that_a_job_catches_up(person: Person) -> None:
    job = due_job(person.session(), catch_up="all")
    overdue(job, 5 * 3600)
    assert 0 < Scheduler(Celery("test"), lazy=True)._fire_due() <= LONGEST_RETRY
    assert fire_due_jobs().queued == 1, "the next one waits behind it, whatever `overlap` says"


def test_beat_looks_again_soon_while_another_holds_a_due_job(person: Person) -> None:
    free, held = due_job(person.session()), due_job(person.session())
    beat, other = Scheduler(Celery("test"), lazy=True), connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT FROM automations_jobclock WHERE job_id = %s FOR UPDATE", [held.pk])
        assert 0 < beat._fire_due() <= LONGEST_RETRY
        assert RunRecord.objects.get().job_id == free.pk
        other.rollback()
    finally:
        other.close()
    assert beat._fire_due() > LONGEST_RETRY
    assert RunRecord.objects.filter(job=held).exists()


def test_a_session_with_many_due_jobs_counts_once(person: Person) -> None:
    sessions = {person.session() for _ in range(8)}
    for session in sessions:
        for _ in range(3):
            due_job(session)
    fired = fire_due_jobs()
    assert fired.queued == 24
    assert sorted(hint.session_id for hint in fired.hints) == sorted(session.pk for session in sessions)
