"""One slot of an automation is moved: it becomes one run at the other instant, and none at its own."""

from datetime import datetime, timedelta
from functools import partial

import pytest
from django.db import IntegrityError, transaction

from automations.appointments.calendar import upcoming
from automations.exceptions import JobNotFound, ProtectedJob
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.jobs.explain import explain
from automations.jobs.move import MOST_MOVED, move_slot
from automations.jobs.skip import skip_slots
from automations.models import CronJob, JobClock, RunRecord
from automations.runs.skips import TICK
from sessions_app.exceptions import SessionsError
from sessions_app.models import Turn
from tests.automations.jobs.made import DAILY, HOURLY, add, at_once, clock_of, code_of, new, planned_for
from tests.automations.jobs.test_skip import coming
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("4.5")

HOUR = timedelta(hours=1)


def move(job: CronJob, slot: datetime, to: datetime) -> CronJob:
    return move_slot(job.pk, slot=slot.isoformat(), to=to.isoformat())


def let_come(job: CronJob, by: timedelta) -> None:
    """Let everything that is planned for the job come so much earlier."""
    clock = clock_of(job)
    earlier = {
        (datetime.fromisoformat(slot) - by).isoformat(): (datetime.fromisoformat(to) - by).isoformat()
        for slot, to in (clock.moved or {}).items()
    }
    clock.next_run_at, clock.planned_from, clock.moved = (
        planned_for(job) - by,
        clock.planned_from - by,
        earlier,
    )
    clock.last_slot = clock.last_slot and clock.last_slot - by
    clock.save()
    job.refresh_from_db()
    assert job.anchor
    CronJob.objects.filter(pk=job.pk).update(anchor=job.anchor - by)
    for run in RunRecord.objects.filter(job=job):
        at = run.scheduled_for - by
        RunRecord.objects.filter(pk=run.pk).update(
            scheduled_for=at, slots_from=at, slots_to=at, moved_to=run.moved_to and run.moved_to - by
        )


@pytest.mark.parametrize("later", [timedelta(minutes=90), -timedelta(minutes=30)])
def test_a_moved_slot_runs_once_at_its_new_time_and_the_others_at_theirs(
    person: Person, later: timedelta
) -> None:
    job = new(person.session(), schedule=HOURLY, message="water", max_runs=3)
    first, second, third = coming(job, 3)
    move(job, second, second + later)
    shown = upcoming(person.user, first - HOUR, third + HOUR)
    assert [each.at for each in shown if each.state == "next"] == sorted([first, third, second + later])
    assert [each.at for each in shown if each.state == "skipped"] == [second]
    for _ in range(3):
        wait = (planned_for(job) - datetime.now(first.tzinfo)) // TICK * TICK + TICK
        let_come(job, wait)
        assert fire_due_jobs().queued == 1
        Turn.objects.update(state="cancelled", finished_at=datetime.now(first.tzinfo))
        assert fire_due_jobs().queued == 0
    runs = RunRecord.objects.filter(job=job).exclude(state="skipped").order_by("scheduled_for")
    apart = [(run.scheduled_for - runs[0].scheduled_for) for run in runs]
    expected = sorted([first, third, second + later])
    assert apart == [each - expected[0] for each in expected]
    assert (clock_of(job).runs_started, clock_of(job).next_run_at) == (3, None)
    assert {turn.content for turn in Turn.objects.all()} == {"water"}


def test_a_moved_slot_says_where_it_went_and_goes_back(person: Person) -> None:
    job = new(person.session())
    first, second = coming(job, 2)
    moved = move(job, first, second + HOUR)
    assert moved.clock.next_run_at == second
    said = explain(person.user, job.pk)
    assert said.last[0].text == f"Moved to {second + HOUR:%Y-%m-%d %H:%M}."
    assert (said.last[0].reason, said.next[:2]) == ("moved", (second, second + HOUR))
    move(job, second, first + HOUR)
    assert f"moved from {second:%Y-%m-%d %H:%M}" in explain(person.user, job.pk).now
    move(job, second + HOUR, second + 2 * HOUR)
    for slot, to in ((second + 2 * HOUR, second + HOUR), (second + HOUR, first), (first + HOUR, second)):
        move(job, slot, to)
    assert not RunRecord.objects.filter(job=job).exists()
    assert (planned_for(job), clock_of(job).moved) == (first, None)
    assert CronJob.objects.get(pk=job.pk).revision == job.revision + 6


def test_a_moved_slot_whose_jitter_runs_is_kept_by_another_move(person: Person) -> None:
    job = new(person.session(), schedule=HOURLY, jitter_seconds=3600)
    [first] = coming(job, 1)
    move(job, first, first + HOUR / 2)
    let_come(job, (first + HOUR / 2 - datetime.now(first.tzinfo)) // TICK * TICK + TICK)
    slots = [each.scheduled_for for each in RunRecord.objects.filter(job=job)]
    due = planned_for(job)
    assert due > datetime.now(first.tzinfo)
    move(job, slots[0] + 2 * HOUR, slots[0] + 2 * HOUR + HOUR / 4)
    assert planned_for(job) == due


def test_an_edit_keeps_a_moved_slot_and_a_pause_leaves_it_out(person: Person) -> None:
    job = new(person.session())
    first, second = coming(job, 2)
    move(job, first, first + HOUR)
    update_job(job.pk, {"schedule": DAILY | {"expr": "0 7 * * *"}, "name": "x"})
    assert first + HOUR in explain(person.user, job.pk).next
    update_job(job.pk, {"schedule": DAILY, "paused_until": (first + 2 * HOUR).isoformat()})
    assert planned_for(job) == second
    update_job(job.pk, {"paused_until": None})
    assert planned_for(job) == first + HOUR
    update_job(job.pk, {"ends_at": (first + HOUR / 2).isoformat(), "schedule": DAILY | {"expr": "0 * * * *"}})
    assert first + HOUR not in explain(person.user, job.pk).next


def test_a_one_time_job_gets_another_time(person: Person) -> None:
    job = new(person.session(), schedule={"kind": "at", "at": "2027-01-01T09:00:00Z"})
    [only] = coming(job, 1)
    move(job, only, only + HOUR)
    assert CronJob.objects.get(pk=job.pk).at == planned_for(job) == only + HOUR


def test_what_cannot_be_moved_is_refused_and_nothing_is_stored(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new(person.session(), ends_at="2027-11-01T00:00:00Z", max_runs=3)
    slots = coming(job, 5)
    pause = {"paused_from": slots[1].isoformat(), "paused_until": (slots[1] + HOUR).isoformat()}
    update_job(job.pk, pause)
    skip_slots(job.pk, slots=1)
    free = slots[2] + HOUR
    cases = [
        (slots[0], free, "nothing_to_move"),  # skipped
        (slots[1], free, "nothing_to_move"),  # in the pause
        (slots[2] + HOUR, free + HOUR, "nothing_to_move"),  # no slot
        (slots[4] + timedelta(days=1), free, "nothing_to_move"),  # after the last of three runs
        (slots[2], slots[3], "bad_to"),
        (slots[2], slots[0] - HOUR, "bad_to"),  # before what was skipped
        (slots[2], slots[1] + HOUR / 2, "bad_to"),
        (slots[2], datetime(2027, 11, 2, tzinfo=slots[0].tzinfo), "bad_to"),
        (slots[2], datetime(2029, 11, 2, tzinfo=slots[0].tzinfo), "bad_to"),
        (slots[2], datetime(2020, 1, 1, tzinfo=slots[0].tzinfo), "bad_to"),
        (datetime(2020, 1, 1, tzinfo=slots[0].tzinfo), free, "bad_slot"),
        (
            slots[2],
            slots[2] + timedelta(days=9, hours=1),
            "nothing_to_move",
        ),  # the last of three runs is before
    ]
    before = clock_of(job)
    for slot, to, code in cases:
        assert code_of(partial(move, job, slot, to)) == code, (slot, to)
    now = clock_of(job)
    assert (now.moved, now.next_run_at) == (None, before.next_run_at)
    assert not RunRecord.objects.filter(job=job, reason="moved").exists()
    new_person("bob", dreams=True)
    for other, refusal in (
        (add(person), JobNotFound),
        (CronJob.objects.get(system_event="dream"), ProtectedJob),
    ):
        with pytest.raises(refusal):
            move(other, slots[0], free)
    monkeypatch.setattr("automations.jobs.move.MOST_MOVED", 0)
    assert MOST_MOVED
    assert code_of(partial(move, job, slots[2], free)) == "bad_to"


def test_the_database_holds_one_move_of_a_slot_and_to_an_instant(person: Person) -> None:
    job = new(person.session())
    first, second = coming(job, 2)
    move(job, first, second + HOUR)
    row = RunRecord.objects.get(job=job)
    for changes in ({"moved_to": None}, {"moved_to": row.scheduled_for}, {"reason": "missed"}):
        with pytest.raises(IntegrityError, match="run_moved_says_where"), transaction.atomic():
            RunRecord.objects.filter(pk=row.pk).update(**changes)
    row.pk, row.scheduled_for = "other", second
    with pytest.raises(IntegrityError, match="run_moved_there_once"), transaction.atomic():
        row.save(force_insert=True)


@pytest.mark.django_db(transaction=True)
def test_a_move_that_races_with_firing_and_others_leaves_one_run_of_the_slot(person: Person) -> None:
    """Whoever is first: the due slot runs once, and of two moves of one slot one is refused."""
    for _ in range(5):
        job = new(person.session(), schedule=HOURLY)
        first, second = coming(job, 2)
        JobClock.objects.filter(pk=job.pk).update(next_run_at=first - HOUR)
        CronJob.objects.filter(pk=job.pk).update(anchor=first - HOUR)

        def attempt(minutes: int, job: CronJob = job, second: datetime = second) -> str:
            try:
                move(job, second, second + timedelta(minutes=minutes))
            except SessionsError as refused:
                return refused.code
            return "moved"

        came = at_once(fire_due_jobs, partial(attempt, 10), partial(attempt, 20))
        fire_due_jobs()
        assert sorted(map(str, came[1:])) == ["moved", "nothing_to_move"]
        runs = RunRecord.objects.filter(job=job)
        assert [run.scheduled_for for run in runs.exclude(state="skipped")] == [first - HOUR]
        assert [run.scheduled_for for run in runs.filter(reason="moved")] == [second]
        assert planned_for(job) == first
