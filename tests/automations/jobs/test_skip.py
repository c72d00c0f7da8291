"""A person skips the next slots: they are recorded at once, and nothing makes one of them run."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from automations.exceptions import JobNotFound, NothingToSkip, ProtectedJob, TooManyJobs
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.jobs.explain import explain
from automations.jobs.skip import MOST_SKIPPED, skip_slots, unskip
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.retention.zones import ZoneWalk
from automations.schedules.describe import preview
from automations.schedules.plan import jitter_of, schedule_of
from sessions_app.exceptions import RevisionConflict
from sessions_app.models import Turn
from tests.automations.jobs import made
from tests.automations.jobs.made import DAILY, EVERY, at_once, clock_of, code_of, new, overdue
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("4.5")


def coming(job: CronJob, number: int) -> tuple[datetime, ...]:
    """The next slots of the job's schedule."""
    return preview(schedule_of(job), datetime.now(UTC), number).next


def test_a_skipped_slot_is_recorded_and_the_next_one_runs(person: Person, job: CronJob) -> None:
    first, second = coming(job, 2)
    skip_slots(job.pk, slots=1)
    assert clock_of(job).next_run_at == second
    assert CronJob.objects.get(pk=job.pk).revision == job.revision + 1
    run = RunRecord.objects.get(job=job)
    assert (run.state, run.reason, run.scheduled_for) == ("skipped", "skipped_by_user", first)
    assert (run.slots_from, run.slots_to, run.slots_count) == (first, first, 1)
    assert explain(person.user, job.pk).last[0].text == "Skipped: on a person's request."
    assert clock_of(job).last_slot is None, "a slot that is to come is no fault for `doctor`"
    with pytest.raises(IntegrityError, match="jobclock_next_is_not_skipped"), transaction.atomic():
        JobClock.objects.filter(pk=job.pk).update(next_run_at=first)


def test_several_slots_are_one_gap_that_later_skips_extend(job: CronJob) -> None:
    slots = coming(job, 6)
    skip_slots(job.pk, slots=3)
    skip_slots(job.pk, slots=2)
    run = RunRecord.objects.get(job=job)
    assert (run.slots_from, run.slots_to, run.slots_count) == (slots[0], slots[4], 5)
    assert clock_of(job).next_run_at == slots[5]


def test_a_skip_is_taken_back_as_long_as_its_slot_is_to_come(person: Person) -> None:
    job = new(person.session(), max_runs=3)
    slots = coming(job, 4)
    skip_slots(job.pk, slots=3)
    back = unskip(job.pk, since=slots[1])
    run = RunRecord.objects.get(job=job)
    assert (run.slots_from, run.slots_to, run.slots_count) == (slots[0], slots[0], 1)
    assert (back.clock.skipped_to, clock_of(job).next_run_at) == (slots[0], slots[1])
    update_job(job.pk, {"paused_until": slots[2].isoformat()})
    unskip(job.pk)
    assert not RunRecord.objects.filter(job=job).exists()
    assert clock_of(job).next_run_at == slots[2], "a pause goes on"
    update_job(job.pk, {"enabled": True})
    assert clock_of(job).next_run_at == slots[0]
    first = overdue(job)
    skip_slots(job.pk, slots=1)  # a slot that has come
    for each in (None, first):
        with pytest.raises(NothingToSkip):
            unskip(job.pk, since=each)
    assert RunRecord.objects.get(job=job).slots_from == first


def test_a_job_that_runs_again_after_an_unskip_counts_among_the_enabled(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = person.session()
    job = new(session, schedule={"kind": "at", "at": "2099-01-01T09:00:00Z"})
    skip_slots(job.pk, slots=1)
    monkeypatch.setattr("automations.jobs.edit.MOST_ENABLED", 1)
    other = new(session)
    with pytest.raises(TooManyJobs):
        unskip(job.pk)
    update_job(other.pk, {"enabled": False})
    unskip(job.pk)
    assert explain(person.user, job.pk).state == "scheduled"


def test_slots_before_a_time_are_skipped(person: Person) -> None:
    job = new(person.session(), jitter_seconds=30)
    slots = coming(job, 4)
    skip_slots(job.pk, until=slots[2].isoformat())
    assert clock_of(job).next_run_at == slots[2] + jitter_of(job)
    assert RunRecord.objects.get(job=job).slots_to == slots[1]
    with pytest.raises(NothingToSkip):
        skip_slots(job.pk, until=slots[2].isoformat())


@pytest.mark.parametrize(("catch_up", "number", "counted"), [("one", 3, 3), ("none", 3, 3), ("all", 3, 1)])
def test_a_due_slot_counts_as_the_next_one(person: Person, catch_up: str, number: int, counted: int) -> None:
    """Those that would become one run count as one."""
    job = new(person.session(), schedule=EVERY, catch_up=catch_up)
    first = overdue(job, 5 + 60 * (number - 1))  # so many slots are due
    skip_slots(job.pk, slots=1)
    run = RunRecord.objects.get(job=job)
    assert (run.slots_from, run.slots_count) == (first, counted)
    assert fire_due_jobs().queued == (0 if counted == number else 1)
    assert not RunRecord.objects.filter(job=job, scheduled_for=first).exclude(state="skipped").exists()


def test_skipped_slots_do_not_count_as_runs(person: Person) -> None:
    job = new(person.session(), schedule=EVERY, max_runs=1)
    skip_slots(job.pk, slots=2)
    assert clock_of(job).runs_started == 0
    JobClock.objects.filter(pk=job.pk).update(skipped_to=None)  # as if that time had come
    overdue(job, 0)
    assert fire_due_jobs().queued == 1
    with pytest.raises(NothingToSkip, match="no more runs"):
        skip_slots(job.pk, slots=1)


def test_skipping_the_last_slot_ends_the_job(person: Person) -> None:
    job = new(person.session(), schedule={"kind": "at", "at": "2099-01-01T09:00:00Z"})
    skip_slots(job.pk, slots=5)
    assert clock_of(job).next_run_at is None
    assert explain(person.user, job.pk).state == "done"
    with pytest.raises(NothingToSkip, match="no more runs"):
        skip_slots(job.pk, slots=1)


def test_no_new_plan_brings_a_skipped_slot_back(job: CronJob) -> None:
    """Neither a resume, nor an edit of the schedule, nor new zone data."""
    after = coming(job, 4)[3]
    skip_slots(job.pk, slots=3)
    update_job(job.pk, {"enabled": False})
    update_job(job.pk, {"enabled": True})
    assert clock_of(job).next_run_at == after
    update_job(job.pk, {"jitter_seconds": 1})
    update_job(job.pk, {"jitter_seconds": 0})
    assert clock_of(job).next_run_at == after
    JobClock.objects.filter(pk=job.pk).update(next_run_at=after + timedelta(days=1))
    with transaction.atomic():
        assert ZoneWalk().step({}, 10, dry=False).position == {"zone": "Europe/Berlin", "after": ""}
    assert clock_of(job).next_run_at == after
    update_job(job.pk, {"schedule": DAILY | {"expr": "0 8 * * *"}})
    assert made.planned_for(job) >= after - timedelta(hours=1)
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    assert code_of(partial(update_job, job.pk, {"schedule": {"kind": "at", "at": soon}})) == "never_fires"


def test_a_run_that_was_fired_goes_on(person: Person) -> None:
    job = new(person.session(), schedule=EVERY)
    overdue(job, 1)
    fire_due_jobs()
    skip_slots(job.pk, slots=1)
    assert RunRecord.objects.get(job=job, state=RunState.QUEUED).turn is not None


def test_bad_requests_to_skip_store_nothing(job: CronJob) -> None:
    for fields, code in (
        ({}, "bad_skip"),
        ({"slots": 1, "until": "2099-01-01T00:00:00Z"}, "bad_skip"),
        ({"slots": 0}, "bad_skip"),
        ({"slots": MOST_SKIPPED + 1}, "bad_skip"),
        ({"until": "2020-01-01T00:00:00Z"}, "bad_until"),
        ({"until": "soon"}, "bad_until"),
    ):
        assert code_of(partial(skip_slots, job.pk, **fields)) == code, fields
    assert not RunRecord.objects.exists()


def test_only_slots_that_would_run_can_be_skipped(person: Person, job: CronJob) -> None:
    with pytest.raises(RevisionConflict):
        skip_slots(job.pk, slots=1, revision=99)
    with pytest.raises(JobNotFound):
        skip_slots("unknown", slots=1)
    routine = made.add(person, "tidy", schedule="1h")
    with pytest.raises(JobNotFound):
        skip_slots(routine.pk, slots=1)
    update_job(job.pk, {"paused_until": "2099-01-01T00:00:00Z"})
    with pytest.raises(NothingToSkip, match="paused until 2099"):
        skip_slots(job.pk, slots=1)
    update_job(job.pk, {"enabled": False})
    with pytest.raises(NothingToSkip, match="is paused"):
        skip_slots(job.pk, slots=1)
    new_person("bob", dreams=True)
    with pytest.raises(ProtectedJob):
        skip_slots(CronJob.objects.get(system_event="dream").pk, slots=1)
    assert not RunRecord.objects.exists()


def test_each_slot_is_either_skipped_or_run_when_both_race(person: Person) -> None:
    """Beats fire while a person skips, on real connections: no slot is both, and none is lost."""
    for number in range(6):
        job = new(person.session(), schedule=EVERY, catch_up="all", overlap="queue")
        first = overdue(job, 121)  # three slots
        beats: list[Any] = [fire_due_jobs] * 2

        def skip(job: CronJob = job) -> None:
            skip_slots(job.pk, slots=1)

        came = at_once(*([skip, *beats] if number % 2 else [*beats, skip, skip]))
        assert not any(isinstance(each, Exception) and not isinstance(each, NothingToSkip) for each in came)
        runs = list(RunRecord.objects.filter(job=job).order_by("scheduled_for"))
        covered: list[datetime] = []
        for run in runs:
            begin, end = run.slots_from or run.scheduled_for, run.slots_to or run.scheduled_for
            while begin <= end:
                covered.append(begin)
                begin += timedelta(minutes=1)
        assert covered == sorted(set(covered)), "a slot has two outcomes"
        assert covered == [first + timedelta(minutes=minute) for minute in range(len(covered))]
        assert clock_of(job).next_run_at == first + timedelta(minutes=len(covered))
        skipped = {run.scheduled_for for run in runs if run.reason == "skipped_by_user"}
        assert skipped
        assert not Turn.objects.filter(runs__job=job, due_at__in=skipped).exists()
        CronJob.objects.filter(pk=job.pk).update(enabled=False)
        JobClock.objects.filter(pk=job.pk).update(next_run_at=None)
