"""A pause that begins later, of one automation or of all: none of its slots run, and no others are lost."""

from datetime import UTC, timedelta
from functools import partial

import pytest
from django.db import IntegrityError, transaction

from automations.appointments.calendar import upcoming
from automations.appointments.panel import appointments_of
from automations.appointments.pause_all import change_all, pause_all
from automations.exceptions import NothingToSkip
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.retries import queue_due_retries
from automations.jobs.edit import update_job
from automations.jobs.explain import explain
from automations.jobs.skip import skip_slots
from automations.models import JobClock, RunRecord
from automations.routines.edit import update_routine
from automations.schedules.plan import jitter_of
from automations.selectors import automation
from tests.automations.jobs.made import (
    EVERY,
    HOURLY,
    add,
    at_once,
    clock_of,
    code_of,
    new,
    overdue,
    planned_for,
)
from tests.automations.jobs.test_edit import ahead
from tests.automations.jobs.test_skip import coming
from tests.conftest import Person, new_person
from tests.races import UPDATE, in_line

pytestmark = pytest.mark.rule("4.5")


def test_a_pause_to_come_leaves_out_its_slots_and_none_before(person: Person) -> None:
    """In the summer the clocks go back within it; its begin and its end are instants."""
    job = new(person.session(), jitter_seconds=3600)
    first, second, third, fourth = (each.astimezone(UTC) + jitter_of(job) for each in coming(job, 4))
    pause = {"paused_from": second.isoformat(), "paused_until": (fourth - timedelta(hours=2)).isoformat()}
    due = overdue(job)
    update_job(job.pk, pause)
    assert planned_for(job) == due, "what is due before is not lost"
    JobClock.objects.filter(pk=job.pk).update(next_run_at=first)
    said = explain(person.user, job.pk)
    assert said.next[:2] == (first, fourth)
    assert " Paused from " in said.now
    shown = automation(person.user, job.pk)
    assert {name: getattr(shown, name).isoformat() for name in pause} == pause
    [panel] = appointments_of(person.user, job.session_id)  # type: ignore[arg-type]
    assert (panel.state, panel.paused_until) == ("scheduled", None)
    entries = [each.at for each in upcoming(person.user, first, fourth + timedelta(days=1))]
    assert entries == [first, fourth, fourth + timedelta(days=1)][: len(entries)]
    assert third not in entries
    skip_slots(job.pk, slots=1)
    assert planned_for(job) == fourth
    for wrong in ({"next_run_at": third}, {"paused_from": fourth}, {"paused_until": None}):
        with pytest.raises(IntegrityError, match="jobclock_"), transaction.atomic():
            JobClock.objects.filter(pk=job.pk).update(**wrong)
    for change in ({"paused_from": pause["paused_until"]}, {"paused_from": "2020-01-01T00:00:00Z"}):
        assert code_of(partial(update_job, job.pk, change)) == "bad_paused_from"
    update_job(job.pk, {"paused_from": None})
    assert (clock_of(job).paused_from, planned_for(job)) == (None, fourth)
    update_job(job.pk, {"paused_until": None})
    assert planned_for(job) == second


def test_nothing_fires_in_a_pause_that_has_begun(person: Person) -> None:
    """What was due long before it is not caught up in it, and a run that failed before it is not repeated."""
    job = new(person.session(), schedule=EVERY, max_retry=2)
    update_job(
        job.pk, {"paused_from": ahead(hours=1).isoformat(), "paused_until": ahead(hours=2).isoformat()}
    )
    for late, queued in ((100, 0), (2, 1)):
        JobClock.objects.filter(pk=job.pk).update(paused_from=ahead(hours=1))
        slot = overdue(job, late)
        JobClock.objects.filter(pk=job.pk).update(paused_from=slot + timedelta(seconds=1))
        assert fire_due_jobs().queued == queued
        assert planned_for(job) >= ahead(hours=2) - timedelta(seconds=5)
        JobClock.objects.filter(pk=job.pk).update(last_slot=None)
    assert RunRecord.objects.get(state="skipped").reason == "missed"
    RunRecord.objects.filter(state="queued").update(turn=None, not_before=ahead(seconds=-1))
    assert queue_due_retries(5) == []
    assert RunRecord.objects.get(state="cancelled").reason == "paused"
    with pytest.raises(NothingToSkip, match="paused until"):
        skip_slots(job.pk, slots=1)


@pytest.mark.django_db(transaction=True)
def test_a_pause_to_come_that_races_with_firing_loses_and_doubles_nothing(person: Person) -> None:
    for _ in range(5):
        job = new(person.session(), schedule=HOURLY)
        due = overdue(job)
        pause = {
            "paused_from": ahead(minutes=30).isoformat(),
            "paused_until": ahead(hours=3, minutes=30).isoformat(),
        }
        at_once(fire_due_jobs, partial(update_job, job.pk, pause), fire_due_jobs)
        fire_due_jobs()
        assert [run.scheduled_for for run in RunRecord.objects.filter(job=job)] == [due]
        assert planned_for(job) == due + timedelta(hours=4)


def test_all_is_paused_and_goes_back_to_how_it_stood(person: Person) -> None:
    mine, other = person.session(), person.session()
    plain, longer, inner, there = new(mine), new(mine), new(mine), new(other)
    routine, stays = add(person, schedule="1d"), new(new_person("bob").session())
    begin, until = ahead(days=5).isoformat(), ahead(days=9).isoformat()
    update_job(longer.pk, {"paused_until": ahead(days=30).isoformat()})
    update_job(
        inner.pk, {"paused_from": ahead(days=6).isoformat(), "paused_until": ahead(days=7).isoformat()}
    )
    stood = clock_of(inner).pause
    found = pause_all(person.user, "UTC", session_id=mine.pk, begin=begin, until=until)
    assert {job.pk for job in found.done} >= {plain.pk, inner.pk}
    assert [job.pk for job, _ in found.left] == [longer.pk]
    assert (clock_of(there).pause, clock_of(stays).pause) == (None, None)
    update_job(plain.pk, {"name": "Changed since"})
    back = change_all(found.before, {job.pk: job.revision for job in found.done})
    assert [job.pk for job, _ in back.left] == [plain.pk]
    assert clock_of(inner).pause == stood
    every = pause_all(person.user, "UTC", until=until)
    assert {job.pk for job in every.done} == {plain.pk, inner.pk, there.pk, routine.pk}
    assert min(planned_for(job) for job in every.done).isoformat() >= until
    assert pause_all(person.user, "UTC", until=until).done == []
    change_all(every.before)
    assert not automation(person.user, there.pk).paused_until
    assert min(planned_for(routine), planned_for(there)) < ahead(days=2)
    assert len(pause_all(person.user, "UTC").done) == 5
    assert clock_of(routine).next_run_at is None


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_paused_while_all_are_is_not_theirs_to_resume(person: Person) -> None:
    job = new(person.session())
    own = partial(update_job, job.pk, {"enabled": False})
    [_, found] = in_line(clock_of(job), UPDATE, own, partial(pause_all, person.user, "UTC"))
    assert (found.done, found.before) == ([], {})


def test_a_first_run_that_was_given_is_left_out_only_by_a_pause_in_which_it_lies(person: Person) -> None:
    first = ahead(days=6)
    routine = add(person, schedule="0 9 * * *", next_run_at=first.isoformat())
    for begin, end in ((2, 3), (5, 7), (5, None)):
        until = ahead(days=end).isoformat() if end else None
        update_routine(
            routine.pk, {"paused_from": until and ahead(days=begin).isoformat(), "paused_until": until}
        )
        update_routine(routine.pk, {"title": f"Until {end}"})
        assert (planned_for(routine) == first) == (end != 7)
        assert planned_for(routine) >= first
