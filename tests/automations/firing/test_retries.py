"""A failed run is tried again: further attempts of the same run, each a turn of its own (rule 4.7)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from agent_core.testing import ModelServer
from agent_core.types import Ending, TurnResult
from automations.beat import Scheduler
from automations.firing.batch_size import BatchSize
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.retries import queue_due_retries
from automations.jobs.edit import NewJob, create_job, delete_job, update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.runs import record
from automations.runs.record import RETRY_AFTER
from sessions_app.hints import send
from sessions_app.models import Agent, Message, Turn, TurnState
from sessions_app.sessions.delete import delete_session
from sessions_app.turns.claim import claim_next
from sessions_app.turns.journal import Journal
from tests.conftest import Person
from tests.fleet import Fleet, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("4.7")]
SOON = timedelta(seconds=30)


def new(person: Person, message: str, **more: Any) -> CronJob:
    given: dict[str, Any] = {"schedule": {"kind": "every", "seconds": 3600}, "max_retry": 2, **more}
    return create_job(NewJob(session_id=person.session().pk, message=message, name="again", **given))


def fire(job: CronJob) -> RunRecord:
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    fire_due_jobs()
    return RunRecord.objects.filter(job=job).latest("scheduled_for")


def waiting(run: RunRecord) -> RunRecord | None:
    run.refresh_from_db()
    return run if run.not_before is not None else None


def ended(run: RunRecord) -> RunRecord | None:
    run.refresh_from_db()
    return run if run.finished_at is not None else None


def is_due(run: RunRecord) -> None:
    """The wait is over, without waiting for it."""
    RunRecord.objects.filter(pk=run.pk, not_before__isnull=False).update(not_before=Now())


def failed_once(fleet: Fleet, person: Person, **more: Any) -> tuple[CronJob, RunRecord]:
    fleet.worker()
    Agent.objects.filter(pk=person.agent.pk).update(policy={"max_attempts": 1})
    job = new(person, "[[fail:503x1]] look", **more)
    run = fire(job)
    until(lambda: waiting(run))
    return job, run


def test_a_failed_run_is_retried_in_a_new_turn(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    job, run = failed_once(fleet, person_with_server)
    first = run.turn
    assert first is not None
    assert (run.state, run.attempt, run.reason) == (RunState.QUEUED, 2, "model_unavailable")
    assert run.finished_at is None
    assert run.not_before is not None
    assert first.finished_at is not None
    assert SOON > run.not_before - first.finished_at - RETRY_AFTER[0] > -SOON
    assert not queue_due_retries(10), "its wait is not over"
    is_due(run)
    send(queue_due_retries(10))
    assert not queue_due_retries(10), "one turn for one attempt"
    until(lambda: ended(run))
    assert (run.state, run.attempt, run.reason, run.error) == (RunState.SUCCEEDED, 2, "", "")
    turns = list(Turn.objects.filter(origin_run=run.pk).order_by("id"))
    assert [(turn.origin_attempt, turn.state) for turn in turns] == [(1, "failed"), (2, "succeeded")]
    assert run.turn == turns[1]
    said = Message.objects.filter(session=run.session, role="assistant").values_list("content", flat=True)
    assert said[0].startswith("The turn failed")
    assert len(said) == 2, "each attempt has its closure"
    assert RunRecord.objects.filter(job=job).count() == 1


def test_beat_queues_the_attempt_when_its_wait_is_over(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    _, run = failed_once(fleet, person_with_server)
    is_due(run)
    fleet.beat()
    until(lambda: ended(run))
    assert run.state == RunState.SUCCEEDED


def test_the_run_fails_when_no_attempt_is_left(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    Agent.objects.filter(pk=person_with_server.agent.pk).update(policy={"max_attempts": 1})
    fleet.worker()
    run = fire(new(person_with_server, "[[fail:503x9]] look"))
    for attempt in (2, 3):
        until(lambda: waiting(run))
        assert run.attempt == attempt
        is_due(run)
        send(queue_due_retries(10))
    until(lambda: ended(run))
    assert (run.state, run.attempt, run.reason) == (RunState.FAILED, 3, "model_unavailable")


def test_final_errors_and_runs_without_max_retry_are_not_retried(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    final = fire(new(person_with_server, "[[fail:402x9]] look"))
    plain = fire(new(person_with_server, "[[fail:503x9]] look", max_retry=0))
    until(lambda: ended(final) and ended(plain))
    assert (final.state, final.attempt, final.reason) == (RunState.FAILED, 1, "model_quota")
    assert (plain.state, plain.attempt, plain.reason) == (RunState.FAILED, 1, "model_unavailable")


def test_the_next_slot_cancels_a_pending_retry(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    job, run = failed_once(fleet, person_with_server)
    following = fire(job)
    assert following != run
    assert following.state == RunState.QUEUED, "a run that waits for a retry is no overlap"
    run.refresh_from_db()
    assert (run.state, run.reason, run.not_before) == (RunState.CANCELLED, "superseded", None)
    assert run.finished_at is not None
    is_due(run)
    assert not queue_due_retries(10)


@pytest.mark.parametrize("how", ["paused", "deleted", "session deleted", "paused after its turn failed"])
def test_a_pending_retry_ends_with_its_job_or_session(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, how: str
) -> None:
    job, run = failed_once(fleet, person_with_server)
    if how == "paused":
        update_job(job.pk, {"enabled": False})
    elif how == "deleted":
        delete_job(job.pk)
    elif how == "session deleted":
        assert job.session_id is not None
        assert delete_session(job.session_id, with_dependents=True).deleted
    else:  # the pause looked before the turn had failed
        CronJob.objects.filter(pk=job.pk).update(enabled=False)
    is_due(run)
    assert not queue_due_retries(10)
    left = RunRecord.objects.filter(pk=run.pk).values_list("state", "reason").first()
    assert left == (("cancelled", "paused") if "paused" in how else None)
    assert not Turn.objects.filter(state=TurnState.QUEUED).exists()


def test_an_earlier_attempts_turn_cannot_close_a_later_attempt(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    _, run = failed_once(fleet, person_with_server)
    stale, before = run.turn, RunRecord.objects.get(pk=run.pk)
    assert stale is not None
    record.record_outcome(stale, TurnResult(ending=Ending.SUCCEEDED), "late")
    with transaction.atomic():  # so that no worker sees the turn
        Turn.objects.filter(pk=stale.pk).update(
            state=TurnState.QUEUED, claim=None, worker=None, finished_at=None
        )
        claimed = claim_next(stale.session_id, uuid.uuid4(), auto_allowed=True)
        assert claimed is not None
        Journal(claimed).record_prompt({}, {"prompt_ref": {}, "variables": {}}, "late")
        run.refresh_from_db()
        transaction.set_rollback(True)
    assert (run.state, run.attempt, run.rendered_prompt) == (RunState.QUEUED, 2, before.rendered_prompt)


def test_two_beats_queue_one_turn_for_an_attempt(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    _, run = failed_once(fleet, person_with_server)
    fleet.beat()
    fleet.beat()
    is_due(run)
    until(lambda: ended(run))
    assert Turn.objects.filter(origin_run=run.pk).count() == 2


def test_a_retry_that_cannot_be_queued_blocks_nothing_else(person: Person) -> None:
    jobs = bad, other, due = [new(person, "look", max_retry=2) for _ in range(3)]
    for job in (bad, other):
        run = fire(job)
        Turn.objects.filter(runs=run).update(state="failed", finished_at=Now(), started_at=Now())
        RunRecord.objects.filter(pk=run.pk).update(attempt=2, not_before=Now())
    assert bad.session is not None
    taken = f"run:{RunRecord.objects.get(job=bad).pk}:2"
    Turn.objects.create(
        session=bad.session, kind="automation", lane="auto", content="x", idempotency_key=taken
    )
    JobClock.objects.filter(job=due).update(next_run_at=Now())
    beat = Scheduler.__new__(Scheduler)
    beat._retry, beat._batch = 0.1, BatchSize(100)
    beat._queue_retries()
    beat._fire_slots()
    runs = {run.job_id: run for run in RunRecord.objects.filter(job__in=jobs).select_related("turn")}
    assert (runs[bad.pk].state, runs[bad.pk].reason) == (RunState.CANCELLED, "retry_error")
    assert "IntegrityError" in runs[bad.pk].error_detail
    for job in (other, due):
        turn = runs[job.pk].turn
        assert turn is not None
        assert (runs[job.pk].state, runs[job.pk].not_before, turn.state) == (RunState.QUEUED, None, "queued")
