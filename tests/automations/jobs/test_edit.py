"""Making, changing, removing automations: refusals store nothing, edits and firing meet cleanly (rules 4.5, 4.12)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now

from automations.exceptions import BadJob, JobNotFound, TooManyJobs
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import MOST_ENABLED, delete_job, update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.exceptions import BadInput, NotFound, RevisionConflict, SessionClosed
from sessions_app.models import Session, SessionState, Turn, TurnState
from sessions_app.sessions.delete import delete_session
from sessions_app.turns.claim import claim_next
from tests.automations.jobs import made
from tests.automations.jobs.made import EVERY, clock_of, overdue, planned_for
from tests.conftest import Person
from tests.races import in_thread

pytestmark = pytest.mark.rule("4.5", "4.12")

new = partial(made.new, schedule=EVERY)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"schedule": {"kind": "cron", "expr": "61 * * * *"}}, "bad_cron"),
    ({"schedule": {"kind": "at", "at": "2020-01-01T09:00:00Z"}}, "past_at"),
    ({"schedule": {}}, "bad_schedule"),
    ({"message": " "}, "empty_message"),
    ({"message": "x" * 20_001}, "message_too_long"),
    ({"name": "a\nb"}, "bad_name"),
    ({"message": "a\x00b"}, "bad_message"),
    ({"overlap": "sometimes"}, "bad_overlap"),
    ({"catch_up": "never"}, "bad_catch_up"),
    ({"timeout_seconds": -1}, "bad_timeout_seconds"),
]


def test_invalid_automations_are_refused_with_a_code_and_not_stored(person: Person) -> None:
    session = person.session()
    for fields, code in BAD:
        with pytest.raises((BadJob, BadInput)) as refusal:
            new(session, **fields)
        assert refusal.value.code == code, fields
        assert str(refusal.value)
    assert (CronJob.objects.count(), JobClock.objects.count()) == (0, 0)


def test_the_limit_of_fifty_enabled_automations_holds_under_concurrency(person: Person) -> None:
    session = person.session()
    for _ in range(MOST_ENABLED - 1):
        new(session)
    racers = [in_thread(lambda: new(session)) for _ in range(3)]
    for thread, _ in racers:
        thread.join(10)
    assert CronJob.objects.filter(session=session).count() == MOST_ENABLED
    assert sum(isinstance(came[0], TooManyJobs) for _, came in racers) == 2
    paused = new(session, enabled=False)
    with pytest.raises(TooManyJobs):
        update_job(paused.pk, {"enabled": True})


def test_edits_change_only_named_fields_and_firing_keeps_the_revision(person: Person) -> None:
    job = new(person.session(), name="first")
    overdue(job)
    assert fire_due_jobs().queued == 1
    changed = update_job(job.pk, {"name": "second"}, revision=1)
    assert (changed.revision, changed.name, changed.message) == (2, "second", "go")
    with pytest.raises(RevisionConflict):
        update_job(job.pk, {"name": "third"}, revision=1)
    with pytest.raises(BadJob):
        update_job(job.pk, {"session": "other"})
    assert RunRecord.objects.get(job=job).snapshot["name"] == "first", "an edit is not retroactive"
    assert Turn.objects.get().input.automation_name == "first"


def test_only_a_schedule_edit_changes_the_next_run(person: Person) -> None:
    job = new(person.session())
    planned = planned_for(job)
    update_job(job.pk, {"message": "else"})
    assert planned_for(job) == planned
    update_job(job.pk, {"schedule": {"kind": "every", "seconds": 5}})
    assert planned_for(job) < planned


def test_pausing_cancels_waiting_runs_and_paused_slots_never_run(person: Person) -> None:
    job = new(person.session())
    overdue(job)
    fire_due_jobs()
    update_job(job.pk, {"enabled": False})
    run = RunRecord.objects.get()
    assert (run.state, run.reason) == (RunState.CANCELLED, "paused")
    assert Turn.objects.get().state == TurnState.CANCELLED
    assert clock_of(job).next_run_at is None
    resumed = update_job(job.pk, {"enabled": True})
    assert planned_for(resumed) > datetime.now(UTC)
    assert fire_due_jobs().claimed == 0
    assert RunRecord.objects.count() == 1


def test_slots_due_before_an_edit_are_recorded_as_skipped(person: Person) -> None:
    job = new(person.session())
    slot = overdue(job, 150)
    update_job(job.pk, {"enabled": False})
    gap = RunRecord.objects.get()
    assert (gap.state, gap.reason, gap.slots_from) == (RunState.SKIPPED, "edited", slot)
    assert (gap.slots_to, gap.slots_count) == (slot + timedelta(seconds=120), 3)


def test_the_previous_run_open_means_a_skipped_run_that_grows(person: Person) -> None:
    job = new(person.session())
    start = overdue(job)
    fire_due_jobs()
    for _ in range(2):
        overdue(job, 0)
        fire_due_jobs()
    ran, skipped = RunRecord.objects.order_by("scheduled_for")
    assert (ran.scheduled_for >= start, ran.state) == (True, RunState.QUEUED)
    assert (skipped.state, skipped.reason, skipped.slots_count) == (RunState.SKIPPED, "overlap", 2)


def test_after_three_days_down_one_run_and_one_gap(person: Person) -> None:
    job = new(person.session())
    first = overdue(job, 3 * 86_400)
    fire_due_jobs()
    gap, run = RunRecord.objects.order_by("scheduled_for")
    assert (gap.state, gap.reason, gap.slots_from, gap.slots_count) == ("skipped", "missed", first, None)
    assert gap.slots_to == run.scheduled_for - timedelta(seconds=60)
    assert datetime.now(UTC) - run.scheduled_for < timedelta(seconds=61)
    assert run.run_id == f"{job.pk}:{round(run.scheduled_for.timestamp() * 1000)}"


def test_an_edit_concurrent_with_firing_has_one_clean_outcome(person: Person) -> None:
    for number in range(4):
        job = new(person.session())
        overdue(job)
        actions: list[Any] = [fire_due_jobs, partial(update_job, job.pk, {"enabled": False})]
        threads = [in_thread(action) for action in (actions if number % 2 else actions[::-1])]
        for thread, _ in threads:
            thread.join(10)
        assert all(not isinstance(came[0], Exception) for _, came in threads)
        run = RunRecord.objects.get(job=job)
        assert (run.state, run.reason) in {(RunState.CANCELLED, "paused"), (RunState.SKIPPED, "edited")}
        assert not Turn.objects.filter(state=TurnState.QUEUED).exists()


def test_a_deleted_job_leaves_nothing_that_would_run(person: Person) -> None:
    job = new(person.session())
    overdue(job)
    fire_due_jobs()
    delete_job(job.pk)
    assert not CronJob.objects.exists()
    assert Turn.objects.get().state == TurnState.CANCELLED
    with pytest.raises(JobNotFound):
        delete_job(job.pk)


def test_no_automation_binds_to_a_deleted_or_closing_session(person: Person) -> None:
    going = person.session()
    Session.objects.filter(pk=going.pk).update(state=SessionState.DELETING, deleting_since=Now())
    with pytest.raises(SessionClosed):
        new(going)
    gone = person.session()
    assert delete_session(gone.pk).deleted
    with pytest.raises(NotFound):
        new(gone)


def test_pausing_leaves_a_turn_that_runs_alone(person: Person) -> None:
    job = new(person.session())
    overdue(job)
    fire_due_jobs()
    turn = Turn.objects.get()
    assert claim_next(turn.session_id, uuid.uuid4(), auto_allowed=True)
    update_job(job.pk, {"enabled": False})
    turn.refresh_from_db()
    assert (turn.state, turn.cancel_requested_at) == (TurnState.RUNNING, None)
    assert RunRecord.objects.get().state == RunState.RUNNING


def test_empty_edits_change_nothing_and_new_schedules_set_their_zone(person: Person) -> None:
    job = new(person.session(), schedule={"kind": "cron", "expr": "0 9 * * *", "timezone": "Asia/Shanghai"})
    assert update_job(job.pk, {}).revision == 1
    changed = update_job(job.pk, {"schedule": EVERY})
    assert (changed.timezone, changed.revision) == ("UTC", 2)


@pytest.mark.parametrize(
    ("changes", "started"), [({"schedule": EVERY}, 1), ({"max_runs": None}, 2)], ids=["schedule", "max_runs"]
)
def test_a_finished_automation_counts_again_once_it_has_a_slot(
    person: Person, changes: dict[str, Any], started: int
) -> None:
    session = person.session()
    done = new(session, max_runs=2)
    JobClock.objects.filter(job=done).update(next_run_at=None, runs_started=started)
    for _ in range(MOST_ENABLED):
        new(session)
    with pytest.raises(TooManyJobs):
        update_job(done.pk, changes)
    assert clock_of(done).next_run_at is None
    delete_job(CronJob.objects.exclude(pk=done.pk)[0].pk)
    update_job(done.pk, changes)
    assert clock_of(done).next_run_at is not None


def test_resuming_a_one_shot_whose_time_passed_is_refused(person: Person) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    job = new(person.session(), schedule={"kind": "at", "at": at}, enabled=False)
    CronJob.objects.filter(pk=job.pk).update(at=Now() - timedelta(hours=1))
    with pytest.raises(BadJob, match="has passed; give it a new time") as caught:
        update_job(job.pk, {"enabled": True})
    assert caught.value.code == "past_at"
    job.refresh_from_db()
    assert (job.enabled, job.revision) == (False, 1)
    assert update_job(job.pk, {"enabled": True, "schedule": {"kind": "at", "at": at}}).enabled


def test_nothing_is_bound_to_a_session_of_the_servers_own(person: Person) -> None:
    for kind in ("job", "heartbeat"):
        inside = Session.objects.create(agent=person.agent, owner=person.user, key=f"cron:{kind}", type=kind)
        with pytest.raises(BadJob, match="internal"):
            new(inside)
    assert not CronJob.objects.exists()


def test_a_gap_from_an_edit_is_counted_up_to_1000(person: Person) -> None:
    job = new(person.session())
    for slots, count in ((1000, 1000), (1001, None)):
        overdue(job, 60 * (slots - 1) + 30)
        JobClock.objects.filter(job=job).update(last_slot=None)
        update_job(job.pk, {"enabled": False})
        assert RunRecord.objects.get(job=job).slots_count == count
        RunRecord.objects.all().delete()
        update_job(job.pk, {"enabled": True})
