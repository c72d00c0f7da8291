"""Making, changing, removing automations: refusals store nothing, edits and firing meet cleanly (rules 4.5, 4.12)."""

import uuid
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from agent_core.types import Ending, TurnResult
from automations.appointments.panel import appointments_of
from automations.exceptions import BadJob, JobNotFound, TooManyJobs
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import MOST_ENABLED, delete_job, update_job
from automations.jobs.explain import explain
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.runs.record import record_outcome
from automations.schedules.plan import schedule_of
from automations.selectors import automation
from sessions_app.exceptions import RevisionConflict
from sessions_app.models import Session, Turn, TurnState
from sessions_app.turns.claim import claim_next
from tests.automations.jobs import made
from tests.automations.jobs.made import EVERY, at_once, clock_of, code_of, overdue, planned_for
from tests.conftest import Person

pytestmark = pytest.mark.rule("4.5", "4.12")

new = partial(made.new, schedule=EVERY)


@pytest.fixture
def job(session: Session) -> CronJob:
    """One with a slot each minute."""
    return new(session)


def test_the_limit_of_fifty_enabled_automations_holds_under_concurrency(session: Session) -> None:
    for _ in range(MOST_ENABLED - 1):
        new(session)
    racers = at_once(*[lambda: new(session)] * 3)
    assert CronJob.objects.filter(session=session).count() == MOST_ENABLED
    assert sum(isinstance(came, TooManyJobs) for came in racers) == 2
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


def test_pausing_cancels_waiting_runs_and_paused_slots_never_run(job: CronJob) -> None:
    overdue(job)
    fire_due_jobs()
    update_job(job.pk, {"enabled": False})
    run = RunRecord.objects.get()
    assert (run.state, run.reason) == (RunState.CANCELLED, "paused")
    assert Turn.objects.get().state == TurnState.CANCELLED
    assert clock_of(job).next_run_at is None
    assert planned_for(update_job(job.pk, {"enabled": True})) > datetime.now(UTC)
    assert fire_due_jobs().claimed == 0
    assert RunRecord.objects.count() == 1


def test_a_deleted_job_leaves_nothing_that_would_run(job: CronJob) -> None:
    overdue(job)
    fire_due_jobs()
    delete_job(job.pk)
    assert not CronJob.objects.exists()
    assert Turn.objects.get().state == TurnState.CANCELLED
    with pytest.raises(JobNotFound):
        delete_job(job.pk)


def test_pausing_leaves_a_turn_that_runs_alone(job: CronJob) -> None:
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


@pytest.mark.parametrize(("changes", "started"), [({"schedule": EVERY}, 1), ({"max_runs": None}, 2)])
def test_a_finished_one_counts_again_with_a_slot(session: Session, changes: Any, started: int) -> None:
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


def test_a_gap_from_an_edit_is_counted_up_to_1000(job: CronJob) -> None:
    for slots, count in ((1000, 1000), (1001, None)):
        first = overdue(job, 60 * (slots - 1) + 30)
        JobClock.objects.filter(job=job).update(last_slot=None)
        update_job(job.pk, {"enabled": False})
        gap = RunRecord.objects.get(job=job)
        assert (gap.state, gap.reason, gap.slots_from) == (RunState.SKIPPED, "edited", first)
        assert (gap.slots_to, gap.slots_count) == (first + timedelta(seconds=60 * (slots - 1)), count)
        RunRecord.objects.all().delete()
        update_job(job.pk, {"enabled": True})


def ahead(**length: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(**length)


def test_a_pause_ends_with_the_first_slot_after_it_and_the_database_holds_it(person: Person) -> None:
    job, until = made.new(person.session()), ahead(days=10)
    update_job(job.pk, {"paused_until": until.isoformat()})
    following = schedule_of(job).next(until - timedelta(milliseconds=1))
    shown = automation(person.user, job.pk)
    assert (shown.next_run_at, shown.paused_until, shown.enabled) == (following, until, True)
    said = explain(person.user, job.pk)
    seconds = f":{until:%S}." if until.second else "."
    assert said.now == f"Paused until {until.astimezone(said.next[0].tzinfo):%Y-%m-%d %H:%M}{seconds}"
    assert said.next[0] == following
    [panel] = appointments_of(person.user, job.session_id)  # type: ignore[arg-type]
    assert (panel.state, panel.paused_until, panel.next[0]) == ("paused", until, following)
    update_job(job.pk, {"paused_until": following.isoformat()})
    assert planned_for(job) == following, "a slot at the end of the pause runs"
    many = [date(2026, 1, 1)] * 101
    bad: list[dict[str, Any]] = [{"except_dates": []}, {"except_dates": many}, {"schedule_kind": "rrule"}]
    for wrong in bad:
        with pytest.raises(IntegrityError, match="cronjob_"), transaction.atomic():
            CronJob.objects.filter(pk=job.pk).update(**wrong)
    with pytest.raises(IntegrityError, match="jobclock_next_is_outside_the_pause"), transaction.atomic():
        JobClock.objects.filter(pk=job.pk).update(next_run_at=ahead(days=1))


def test_a_pause_that_has_passed_is_shown_no_more(person: Person, job: CronJob) -> None:
    """Nothing has to run for that."""
    update_job(job.pk, {"paused_until": ahead(hours=1).isoformat()})
    JobClock.objects.filter(pk=job.pk).update(paused_until=ahead(hours=-1), next_run_at=ahead(seconds=-1))
    assert automation(person.user, job.pk).paused_until is None
    assert fire_due_jobs().queued == 1
    assert not explain(person.user, job.pk).now.startswith("Paused")


def test_a_pause_accounts_for_due_slots_and_queued_runs(person: Person) -> None:
    """As `enabled: false` does; the time of the pause is not caught up."""
    job = new(person.session(), max_runs=5, catch_up="all")
    overdue(job, 30)
    fire_due_jobs()
    assert clock_of(job).runs_started == 1
    due = overdue(job)
    update_job(job.pk, {"paused_until": ahead(hours=1).isoformat()})
    runs = RunRecord.objects.filter(job=job).order_by("scheduled_for", "run_id")
    assert {(run.state, run.reason) for run in runs} == {("cancelled", "paused"), ("skipped", "edited")}
    assert runs.get(reason="edited").scheduled_for == due
    assert clock_of(job).runs_started == 0


def test_null_enabling_and_disabling_end_a_pause(person: Person) -> None:
    job = made.new(person.session())
    before = clock_of(job).next_run_at
    for changes in ({"paused_until": None}, {"enabled": True}, {"enabled": False}):
        update_job(job.pk, {"paused_until": ahead(days=30).isoformat()})
        assert clock_of(job).next_run_at != before
        update_job(job.pk, changes)
        following = before if changes.get("enabled", True) else None
        assert (clock_of(job).next_run_at, clock_of(job).paused_until) == (following, None), changes
    update_job(job.pk, {"enabled": True, "paused_until": ahead(days=3).isoformat()})
    assert clock_of(job).paused_until is not None
    update_job(job.pk, {"enabled": True})
    assert clock_of(job).next_run_at == before


def test_other_edits_keep_the_pause(person: Person) -> None:
    job, until = made.new(person.session()), ahead(days=30)
    update_job(job.pk, {"paused_until": until.isoformat()})
    update_job(job.pk, {"name": "other"})
    update_job(job.pk, {"schedule": EVERY})
    assert until <= planned_for(job) < until + timedelta(minutes=1)


def test_a_pause_that_leaves_no_run_is_refused(person: Person) -> None:
    ending = made.new(person.session(), ends_at=ahead(days=3).isoformat())
    paused = made.new(person.session(), enabled=False)
    for job, text, code in (
        (ending, ahead(days=4).isoformat(), "never_fires"),
        (paused, ahead(days=4).isoformat(), "bad_paused_until"),
        (ending, "2020-01-01T00:00:00Z", "bad_paused_until"),
        (ending, 5, "bad_paused_until"),
    ):
        assert code_of(partial(update_job, job.pk, {"paused_until": text})) == code
        assert clock_of(job).paused_until is None


@pytest.mark.rule("4.7")
def test_a_run_that_fails_in_a_pause_is_not_retried(person: Person) -> None:
    job = new(person.session(), max_retry=2)
    overdue(job)
    fire_due_jobs()
    run = RunRecord.objects.get(job=job)
    RunRecord.objects.filter(pk=run.pk).update(state=RunState.RUNNING, started_at=ahead(seconds=0))
    update_job(job.pk, {"paused_until": ahead(days=1).isoformat()})
    with transaction.atomic():
        record_outcome(Turn.objects.get(), TurnResult(ending=Ending.FAILED, error_code="timeout"), "")
    run.refresh_from_db()
    assert run.state == RunState.FAILED
