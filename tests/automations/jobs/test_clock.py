"""A pause until a time: nothing before it runs, and the automation continues by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction

from agent_core.types import Ending, TurnResult
from automations.appointments.panel import appointments_of
from automations.exceptions import BadJob
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.jobs.explain import explain
from automations.models import JobClock, RunRecord, RunState
from automations.runs.record import record_outcome
from automations.schedules.plan import schedule_of
from automations.selectors import automation
from tests.automations.jobs.made import EVERY, clock_of, new, overdue, planned_for
from tests.conftest import Person

pytestmark = pytest.mark.rule("4.5")


def ahead(**length: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(**length)


def test_a_pause_ends_with_the_first_slot_after_it(person: Person) -> None:
    job, until = new(person.session()), ahead(days=10)
    update_job(job.pk, {"paused_until": until.isoformat()})
    following = schedule_of(job).next(until - timedelta(milliseconds=1))
    shown = automation(person.user, job.pk)
    assert (shown.next_run_at, shown.paused_until, shown.enabled) == (following, until, True)
    said = explain(person.user, job.pk)
    assert said.now == f"Paused until {until.astimezone(said.next[0].tzinfo):%Y-%m-%d %H:%M}".rstrip() + (
        f":{until:%S}." if until.second else "."
    )
    assert said.next[0] == following
    [panel] = appointments_of(person.user, job.session_id)  # type: ignore[arg-type]
    assert (panel.state, panel.paused_until, panel.next[0]) == ("paused", until, following)


def test_a_slot_at_the_end_of_the_pause_runs(person: Person) -> None:
    job = new(person.session())
    slot = planned_for(job)
    update_job(job.pk, {"paused_until": slot.isoformat()})
    assert clock_of(job).next_run_at == slot


def test_a_pause_that_has_passed_is_shown_no_more(person: Person) -> None:
    """Nothing has to run for that."""
    job = new(person.session(), schedule=EVERY)
    update_job(job.pk, {"paused_until": ahead(hours=1).isoformat()})
    JobClock.objects.filter(pk=job.pk).update(paused_until=ahead(hours=-1), next_run_at=ahead(seconds=-1))
    assert automation(person.user, job.pk).paused_until is None
    assert fire_due_jobs().queued == 1
    assert not explain(person.user, job.pk).now.startswith("Paused")


def test_a_pause_accounts_for_due_slots_and_queued_runs(person: Person) -> None:
    """As `enabled: false` does; the time of the pause is not caught up."""
    job = new(person.session(), schedule=EVERY, max_runs=5, catch_up="all")
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
    job = new(person.session())
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
    job, until = new(person.session()), ahead(days=30)
    update_job(job.pk, {"paused_until": until.isoformat()})
    update_job(job.pk, {"name": "other"})
    update_job(job.pk, {"schedule": EVERY})
    assert until <= planned_for(job) < until + timedelta(minutes=1)


def test_a_pause_that_leaves_no_run_is_refused(person: Person) -> None:
    ending = new(person.session(), ends_at=ahead(days=3).isoformat())
    paused = new(person.session(), enabled=False)
    for job, text, code in (
        (ending, ahead(days=4).isoformat(), "never_fires"),
        (paused, ahead(days=4).isoformat(), "bad_paused_until"),
        (ending, "2020-01-01T00:00:00Z", "bad_paused_until"),
        (ending, 5, "bad_paused_until"),
    ):
        with pytest.raises(BadJob) as refused:
            update_job(job.pk, {"paused_until": text})
        assert refused.value.code == code
        assert clock_of(job).paused_until is None


def test_the_database_refuses_a_run_within_a_pause(person: Person) -> None:
    job = new(person.session())
    update_job(job.pk, {"paused_until": ahead(days=30).isoformat()})
    with pytest.raises(IntegrityError, match="jobclock_next_is_after_the_pause"), transaction.atomic():
        JobClock.objects.filter(pk=job.pk).update(next_run_at=ahead(days=1))


@pytest.mark.rule("4.7")
def test_a_run_that_fails_in_a_pause_is_not_retried(person: Person) -> None:
    job = new(person.session(), schedule=EVERY, max_retry=2)
    overdue(job)
    fire_due_jobs()
    run = RunRecord.objects.get(job=job)
    assert run.turn is not None
    RunRecord.objects.filter(pk=run.pk).update(state=RunState.RUNNING, started_at=ahead(seconds=0))
    update_job(job.pk, {"paused_until": ahead(days=1).isoformat()})
    record_outcome(run.turn, TurnResult(ending=Ending.FAILED, error_code="timeout"), "")
    run.refresh_from_db()
    assert run.state == RunState.FAILED
