"""A failed run is tried again: further attempts of the same run, each a turn of its own (rule 4.7)."""

from datetime import UTC, timedelta
from typing import Any

import pytest
from celery import Celery
from django.db.models.functions import Now

from agent_core.exceptions import ModelRefused, ModelUnavailable
from agent_core.types import Ending, TurnResult
from automations.beat import Scheduler
from automations.firing.retries import queue_due_retries
from automations.jobs.edit import delete_job, update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.runs import record
from automations.runs.describe import describe_run
from automations.runs.record import RETRY_AFTER
from sessions_app.models import Agent, Message, Turn, TurnState
from sessions_app.queue.kinds import Trigger, kind_of
from sessions_app.sessions.delete import delete_session
from tests.automations.jobs import made
from tests.automations.messages import claimed
from tests.automations.turn_kinds import test_bound
from tests.automations.turn_kinds.test_bound import fire
from tests.conftest import Person
from tests.inside import Inside, Reply
from tests.races import before

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("4.7")]
SOON = timedelta(seconds=30)


DOWN = ModelUnavailable("down")
BROKEN = RuntimeError("a bug")  # an error for which `max_retry` decides


def new(person: Person, **more: Any) -> CronJob:
    fields = {"schedule": made.HOURLY, "message": "look", "max_retry": 2} | more
    return made.new(person.session(), **fields)


def is_due(run: RunRecord) -> None:
    """The wait is over, without waiting for it."""
    RunRecord.objects.filter(pk=run.pk, not_before__isnull=False).update(not_before=Now())


def ran(inside: Inside, *replies: Reply, **more: Any) -> tuple[CronJob, RunRecord]:
    """A job and its run after its first attempt."""
    Agent.objects.update(policy={"max_attempts": 1})
    job = new(inside.person, **more)
    return job, test_bound.ran(inside, job, *replies)


def test_a_failed_run_is_retried_in_a_new_turn(inside: Inside) -> None:
    job, run = ran(inside, BROKEN)
    first: Any = Turn.objects.get(runs=run)
    assert (run.state, run.attempt, run.reason) == (RunState.QUEUED, 2, "internal_error")
    assert run.finished_at is None
    assert run.not_before is not None
    assert SOON > run.not_before - first.finished_at - RETRY_AFTER[0] > -SOON
    assert not queue_due_retries(10), "its wait is not over"
    test_bound.repeated(inside, run)
    assert (run.state, run.attempt, run.reason, run.error) == (RunState.SUCCEEDED, 2, "", "")
    turns = list(Turn.objects.filter(origin_run=run.pk).order_by("id"))
    assert [(turn.origin_attempt, turn.state) for turn in turns] == [(1, "failed"), (2, "succeeded")]
    assert run.turn == turns[1]
    said = Message.objects.filter(session=run.session, role="assistant").values_list("content", flat=True)
    assert said[0].startswith("The turn failed")
    assert len(said) == 2, "each attempt has its closure"
    assert RunRecord.objects.filter(job=job).count() == 1


def test_final_errors_and_runs_without_max_retry_are_not_retried(inside: Inside) -> None:
    _, final = ran(inside, ModelRefused("no", code="model_quota"))
    _, plain = ran(inside, BROKEN, max_retry=0)
    assert (final.state, final.attempt, final.reason) == (RunState.FAILED, 1, "model_quota")
    assert (plain.state, plain.attempt, plain.reason) == (RunState.FAILED, 1, "internal_error")


def test_the_next_slot_cancels_a_pending_retry(inside: Inside) -> None:
    job, run = ran(inside, DOWN)
    following = fire(job)
    assert following != run
    assert following.state == RunState.QUEUED, "a run that waits for a retry is no overlap"
    run.refresh_from_db()
    assert (run.state, run.reason, run.not_before) == (RunState.CANCELLED, "superseded", None)
    assert run.finished_at is not None
    assert describe_run(run, UTC) == "Failed: the model did not answer; not repeated, the next slot came."
    is_due(run)
    assert not queue_due_retries(10)


@pytest.mark.parametrize("how", ["paused", "deleted", "session deleted", "paused after its turn failed"])
def test_a_pending_retry_ends_with_its_job_or_session(inside: Inside, how: str) -> None:
    job, run = ran(inside, DOWN)
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


def test_an_earlier_attempts_turn_cannot_close_a_later_attempt(inside: Inside) -> None:
    _, run = ran(inside, DOWN)
    stale, prompt = Turn.objects.get(runs=run), run.rendered_prompt
    record.record_outcome(stale, TurnResult(ending=Ending.SUCCEEDED), "late")
    Turn.objects.filter(pk=stale.pk).update(state=TurnState.QUEUED, claim=None, worker=None, finished_at=None)
    turn = claimed(stale.session)
    late = Trigger(content="", model_content="late", template={"prompt_ref": {}, "variables": {}})
    kind_of(turn).prompted(turn, late)
    run.refresh_from_db()
    assert (run.state, run.attempt, run.rendered_prompt) == (RunState.QUEUED, 2, prompt)


def test_two_beats_queue_one_turn_for_an_attempt(inside: Inside) -> None:
    _, run = ran(inside, DOWN)
    is_due(run)
    with before("SKIP LOCKED", lambda: queue_due_retries(10)) as other:
        assert not queue_due_retries(10)
    assert len(other[0]) == 1
    inside.run_all()
    assert Turn.objects.filter(origin_run=run.pk).count() == 2


def test_a_retry_that_cannot_be_queued_blocks_nothing_else(person: Person) -> None:
    jobs = bad, other, due = [new(person) for _ in range(3)]
    for job in (bad, other):
        run = fire(job)
        Turn.objects.filter(runs=run).update(state="failed", finished_at=Now(), started_at=Now())
        RunRecord.objects.filter(pk=run.pk).update(attempt=2, not_before=Now())
    assert bad.session is not None
    taken = {"idempotency_key": f"run:{RunRecord.objects.get(job=bad).pk}:2"}
    Turn.objects.create(session=bad.session, kind="automation", lane="auto", content="x", **taken)
    JobClock.objects.filter(job=due).update(next_run_at=Now())
    Scheduler(Celery("test"), lazy=True)._fire_due()
    runs = {run.job_id: run for run in RunRecord.objects.filter(job__in=jobs)}
    assert (runs[bad.pk].state, runs[bad.pk].reason) == (RunState.CANCELLED, "retry_error")
    assert "IntegrityError" in runs[bad.pk].error_detail
    for job in (other, due):
        state = Turn.objects.get(runs=runs[job.pk]).state
        assert (runs[job.pk].state, runs[job.pk].not_before, state) == (RunState.QUEUED, None, "queued")
