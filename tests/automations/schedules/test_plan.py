"""A plan that ends, is counted or spread: which slots run, when they are fired, and that each is accounted for."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord
from automations.schedules.plan import jitter_of, plan_of
from tests.automations.jobs import made
from tests.automations.jobs.made import EVERY, clock_of, code_of, planned_for
from tests.conftest import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("4.5")]


def soon(**more: Any) -> str:
    return (datetime.now(UTC) + timedelta(**more)).isoformat()


new = partial(made.new, schedule=EVERY, overlap="queue")


def make_due(job: CronJob, seconds: int = 61) -> None:
    """Move the job into the past, grid, end and clock alike."""
    back = timedelta(seconds=seconds)
    CronJob.objects.filter(pk=job.pk).update(anchor=F("anchor") - back, ends_at=F("ends_at") - back)
    earlier = {"next_run_at": F("next_run_at") - back, "last_slot": F("last_slot") - back}
    JobClock.objects.filter(job=job).update(**earlier)


def test_slots_are_handled_up_to_the_end_and_none_after(person: Person) -> None:
    job = new(person.session(), ends_at=soon(seconds=150), catch_up="one")  # slots at 60 and 120 seconds
    make_due(job, 600)
    fire_due_jobs()
    runs = list(RunRecord.objects.filter(job=job).order_by("scheduled_for"))
    end: Any = CronJob.objects.get(pk=job.pk).ends_at
    assert [run.state for run in runs] == ["skipped", "queued"]
    assert runs[0].slots_count == 1
    assert all(run.scheduled_for <= end for run in runs)
    assert clock_of(job).next_run_at is None


def test_the_end_itself_may_be_a_slot(person: Person) -> None:
    job = new(person.session())
    last = planned_for(job)
    update_job(job.pk, {"ends_at": last.isoformat()})
    assert clock_of(job).next_run_at == last
    make_due(job)
    fire_due_jobs()
    assert RunRecord.objects.get(job=job).state == "queued"
    assert clock_of(job).next_run_at is None


def test_a_bad_field_is_refused_and_nothing_is_stored(person: Person) -> None:
    bounds: list[tuple[dict[str, Any], str]] = [
        *(({"ends_at": ends_at}, "bad_ends_at") for ends_at in ("2001-01-01T00:00:00Z", "tomorrow")),
        ({"ends_at": soon(seconds=30)}, "never_fires"),
        *(({"max_runs": number}, "bad_max_runs") for number in (0, True)),
        *(({"jitter_seconds": number}, "bad_jitter_seconds") for number in (-1, 86_401)),
        *(({"max_retry": number}, "bad_max_retry") for number in (11, None)),
        *(({"message": " "}, "empty_message"), ({"message": "x" * 20_001}, "message_too_long")),
        *(({"message": "a\x00b"}, "bad_message"), ({"name": "a\nb"}, "bad_name")),
        *(({"overlap": "sometimes"}, "bad_overlap"), ({"catch_up": "never"}, "bad_catch_up")),
        ({"timeout_seconds": -1}, "bad_timeout_seconds"),
        ({"schedule": {"kind": "cron", "expr": "61 * * * *"}}, "bad_cron"),
    ]
    for given, code in bounds:
        assert code_of(partial(new, person.session(), **given)) == code, given
    assert not CronJob.objects.exists()
    job = new(person.session())
    before = CronJob.objects.values().get(), JobClock.objects.values().get()
    for given, code in bounds:
        assert code_of(partial(update_job, job.pk, given)) == code, given
        assert (CronJob.objects.values().get(), JobClock.objects.values().get()) == before, given


def test_a_job_stops_at_max_runs_even_after_a_purge(person: Person) -> None:
    job = new(person.session(), max_runs=2)
    for seconds, left in ((61, True), (63, False)):
        make_due(job, seconds)
        fire_due_jobs()
        RunRecord.objects.filter(job=job).delete()  # as retention does, and more
        assert (clock_of(job).next_run_at is not None) is left
    assert clock_of(job).runs_started == 2
    for is_on in (False, True):
        update_job(job.pk, {"enabled": is_on})
        assert clock_of(job).next_run_at is None
    update_job(job.pk, {"max_runs": 3})
    assert clock_of(job).next_run_at is not None


def test_a_skipped_slot_does_not_count_toward_max_runs(person: Person) -> None:
    job = new(person.session(), max_runs=1, catch_up="none", schedule={"kind": "every", "seconds": 600})
    make_due(job, 900)
    fire_due_jobs()
    assert RunRecord.objects.get(job=job).state == "skipped"
    assert clock_of(job).runs_started == 0
    assert clock_of(job).next_run_at is not None


def test_jitter_delays_every_firing_equally_without_moving_its_slot(person: Person) -> None:
    job: Any = new(person.session(), jitter_seconds=1000)
    shift = jitter_of(job)
    assert timedelta(0) < shift <= timedelta(seconds=1000)
    assert jitter_of(CronJob.objects.get(pk=job.pk)) == shift
    first = planned_for(job)
    assert first - shift == job.anchor + timedelta(seconds=60)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    fired_at = planned_for(job)
    fire_due_jobs()
    run = RunRecord.objects.get(job=job)
    slot = fired_at - shift
    assert run.scheduled_for == slot.replace(microsecond=slot.microsecond // 1000 * 1000)
    following = planned_for(job)
    assert plan_of(job, 0).slots is not None
    assert ((following - shift) - job.anchor) % timedelta(seconds=60) == timedelta(0)


def test_jitter_spreads_jobs_of_one_slot(person: Person) -> None:
    shifts = {jitter_of(CronJob(pk=f"job{n}", jitter_seconds=600)) for n in range(100)}
    assert len(shifts) > 90
    assert max(shifts) - min(shifts) > timedelta(seconds=400)


def test_an_edit_between_slot_and_firing_skips_the_slot(person: Person) -> None:
    job = new(person.session(), jitter_seconds=1000)
    shift = jitter_of(job)
    with connection.cursor() as cursor:
        # its slot was a second ago, its firing is still to come
        cursor.execute(
            "UPDATE automations_jobclock SET next_run_at = now() - interval '1 second'"
            " + make_interval(secs => %s::float8) WHERE job_id = %s",
            [str(shift.total_seconds()), job.pk],
        )
    update_job(job.pk, {"schedule": {"kind": "every", "seconds": 90}})
    run = RunRecord.objects.get(job=job)
    assert (run.state, run.reason) == ("skipped", "edited")


def test_what_waits_out_its_jitter_is_not_late(person: Person) -> None:
    """`lag_ms` is beat's lateness, and explain says so in words."""
    job = new(person.session(), jitter_seconds=86_400, schedule={"kind": "every", "seconds": 7 * 86_400})
    assert jitter_of(job) > timedelta(minutes=1)
    CronJob.objects.filter(pk=job.pk).update(anchor=datetime.now(UTC) - jitter_of(job))
    JobClock.objects.filter(job=job).update(next_run_at=Now(), planned_from=Now() - timedelta(days=8))
    fire_due_jobs()
    run: Any = RunRecord.objects.get(job=job, state="queued")
    assert run.lag_ms < 30_000


def test_after_its_end_an_automation_is_edited_like_any_other(person: Person) -> None:
    job = new(person.session(), ends_at=(datetime.now(UTC) + timedelta(days=1)).isoformat())
    CronJob.objects.filter(pk=job.pk).update(ends_at=Now() - timedelta(seconds=5))
    JobClock.objects.filter(job=job).update(next_run_at=None)
    for changes in ({"jitter_seconds": 5}, {"max_runs": 3}, {"enabled": False}, {"enabled": True}):
        update_job(job.pk, changes)
        assert clock_of(job).next_run_at is None
    update_job(job.pk, {"ends_at": None})
    assert clock_of(job).next_run_at is not None


def test_a_last_slot_far_ahead_of_the_clock_silences_nothing(person: Person) -> None:
    job = new(person.session(), schedule={"kind": "every", "seconds": 60})
    JobClock.objects.filter(job=job).update(last_slot=Now() + timedelta(days=30))
    update_job(job.pk, {"schedule": {"kind": "every", "seconds": 90}})
    assert planned_for(job) < datetime.now(UTC) + timedelta(seconds=100)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    assert fire_due_jobs().queued == 1
    last: Any = clock_of(job).last_slot
    assert last > datetime.now(UTC) + timedelta(days=29), "it never goes back"
